"""`spec-cpu train`: a head from a target, in steps that can be stopped and done alone."""

from __future__ import annotations

import builtins
import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from program import run_program
from spec_cpu_cli.interrupt import Interrupt
from tiny_talk import TOKENS, write_talker

import spec_cpu
from spec_cpu.heads.file import read_head
from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.machine import hardware
from spec_cpu.train import generate as generating

if importlib.util.find_spec("torch") is None:  # the extra "train"
    pytest.skip("torch is not installed", allow_module_level=True)

from spec_cpu.train import measure, recipe
from spec_cpu.train.generate import Plan

SMALL = ("--tokens", "1500")


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Train = Callable[..., Ended]


@pytest.fixture
def train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Train:
    """The command on little data, in this process, for `tmp_path / "h.gguf"`."""
    monkeypatch.setattr(recipe, "Plan", partial(Plan, sequences=8, length=64))
    monkeypatch.setattr(generating, "ANSWER", (8, 24))
    monkeypatch.setattr(measure, "PROMPTS", 3)
    monkeypatch.setattr(measure, "TOKENS", 8)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(target: Path, *args: str | Path, out: Path = tmp_path / "h.gguf") -> Ended:
        code = run_program(monkeypatch, "train", "-m", target, "-o", out, "-t", 1, *args)
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def target(models: Path) -> Path:
    return write_talker(models / "talkative.gguf")


@pytest.mark.slow
def test_a_head_is_made_tried_and_used(train: Train, target: Path, tmp_path: Path) -> None:
    done = train(target, *SMALL, "--json", "--vocabulary", "50")
    assert done.code == 0, done.err
    result = done.json
    assert [one["temperature"] for one in result["measured"]] == [0.0, 0.8]
    for one in result["measured"]:
        assert one["tokens"] == pytest.approx(1 + np.cumprod(one["alpha"]).sum())
        assert one["speedup"] >= 1.0
    assert result["prompts"] == 3
    assert result["epochs"] == 10.0
    assert "training: " in done.err
    assert "accepted 0." in done.err
    head = read_head(tmp_path / "h.gguf")
    assert len(head.label.tokens) == 50
    assert (
        "1,536 tokens of talkative.gguf's own conversations, 10 epochs, seed 0" in head.label.card
    )
    with spec_cpu.load(target, tmp_path / "h.gguf", k=3, threads=1, seed=0) as session:
        list(session.generate("abc", max_tokens=12))
        assert session.stats.drafted


@pytest.mark.slow
def test_medusa_heads_are_made_tried_and_used(train: Train, target: Path, tmp_path: Path) -> None:
    done = train(target, *SMALL, "--kind", "medusa", "--json", "--vocabulary", "50")
    assert done.code == 0, done.err
    for one in done.json["measured"]:
        assert 1.0 <= one["tokens"] <= 4.0
        assert len(one["alpha"]) <= 3
        assert one["speedup"] >= 1.0
    head = read_head(tmp_path / "h.gguf")
    assert isinstance(head, MedusaHead)
    assert head.accuracy.shape == (3, 8)
    # The same of all candidates: the likeliest of a head is what its acceptance is counted for.
    assert head.accuracy[0, 0] == pytest.approx(head.label.acceptance[0], abs=1e-6)
    with spec_cpu.load(target, tmp_path / "h.gguf", k=5, threads=1, seed=0) as session:
        list(session.generate("abc", max_tokens=12))
        assert session.stats.drafted


@pytest.mark.slow
def test_steps_alone_come_to_the_same(train: Train, target: Path, tmp_path: Path) -> None:
    whole = train(target, *SMALL, "--json", out=tmp_path / "whole.gguf")
    assert whole.code == 0, whole.err
    for step in ("generate", "train"):
        done = train(target, *SMALL, "--only", step, "--json")
        assert (done.code, done.out) == (0, "")
    done = train(target, "--only", "evaluate", "--json")
    alphas = [[one["alpha"] for one in each.json["measured"]] for each in (whole, done)]
    assert alphas[0] == alphas[1]
    assert (tmp_path / "h.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("checks", [30, 150, 270])
def test_stopped_and_resumed_it_makes_the_same_head(
    train: Train, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: int
) -> None:
    whole = train(target, *SMALL, "--only", "generate", out=tmp_path / "whole.gguf")
    assert train(target, *SMALL, "--only", "train", out=tmp_path / "whole.gguf").code == 0
    left = checks
    check = Interrupt.check

    def interrupt(self: Interrupt) -> None:
        nonlocal left
        left -= 1
        self.requested = left == 0
        check(self)

    monkeypatch.setattr(Interrupt, "check", interrupt)
    stopped = train(target, *SMALL, "--only", "generate")
    if stopped.code == 0:
        stopped = train(target, *SMALL, "--only", "train")
    assert stopped.code == 130, whole.err
    assert f"what is finished is in {tmp_path / 'h.gguf.work'}: the same command" in stopped.err
    monkeypatch.setattr(Interrupt, "check", check)
    for step in ("generate", "train"):
        assert train(target, "--only", step).code == 0
    assert (tmp_path / "h.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


@pytest.mark.slow
def test_prompts_of_ones_own(train: Train, target: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    lines = [{"prompt": text} for text in ("abc", "def", "ghi")]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    done = train(target, *SMALL, "--prompts", prompts, "--json")
    assert done.code == 0, done.err
    assert done.json["prompts"] >= 1
    assert "half on 2 prompts" in read_head(tmp_path / "h.gguf").label.card


@pytest.mark.slow
def test_hours_say_when_to_stop(train: Train, target: Path) -> None:
    done = train(target, "--hours", "0.0005", "--json")
    assert done.code == 0, done.err
    assert 1.0 <= done.json["epochs"] <= 40.0


@pytest.mark.slow
def test_a_table_for_people(train: Train, target: Path, tmp_path: Path) -> None:
    done = train(target, *SMALL)
    assert "Accepted: of the first guess of a step, the second" in done.out
    assert f"try it with --draft {tmp_path / 'h.gguf'}" in done.out
    assert train(target, "--quiet", "--only", "evaluate").err == ""


def test_a_target_without_a_template_is_noted(train: Train, tmp_path: Path) -> None:
    plain = write_talker(tmp_path / "plain.gguf", chat_template=None)
    done = train(plain, *SMALL, "--only", "generate")
    assert done.code == 0, done.err
    assert "note: this model has no chat template" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--kind", "hydra"], "kind must be one of eagle, medusa"),
        (["--only", "sleep"], "--only takes one of generate, train, evaluate, not sleep"),
        (["--quantization", "Q9"], "quantization must be one of Q8_0, Q4_0, F16, not Q9"),
        (["--hours", "1", "--tokens", "5"], "give one of them"),
        (["--prompts", "none.jsonl"], "no such file: none.jsonl"),
        (["--only", "train"], "holds no data: generate some first"),
        (["--only", "evaluate"], "no such file"),
        (["--kernels", "maybe"], "kernels must be one of"),
        (["-t", "0"], "threads must be from 1"),
    ],
)
def test_bad_options_are_named(train: Train, target: Path, args: list[str], message: str) -> None:
    done = train(target, *args)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("threads", ["0", "-1", "100000"])
def test_a_step_by_itself_refuses_threads_that_cannot_be(
    train: Train, target: Path, threads: str
) -> None:
    assert train(target, *SMALL, "--only", "generate").code == 0
    done = train(target, "--only", "train", "-t", threads)
    assert done.code == 2
    assert "threads must be from 1" in done.err


def test_a_folder_is_no_file(train: Train, target: Path, tmp_path: Path) -> None:
    assert "is a directory" in train(target, out=tmp_path).err
    assert "is a pipe or a device" in train(target, out=Path("/dev/null")).err
    assert not Path("/dev/null").is_file()
    assert "cannot write to" in train(target, out=tmp_path / "none" / "h.gguf").err


@pytest.mark.parametrize("missing", ["torch", "gguf"])
def test_a_missing_package_names_the_extra(
    train: Train, target: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    done = train(target)
    assert done.code == 2
    assert f'train needs {missing}: pip install ".[train]"' in done.err


def test_a_torch_that_does_not_load_is_told(
    train: Train, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = builtins.__import__

    def broken(name: str, *rest: Any, **named: Any) -> Any:
        if name == "torch":
            raise OSError("libtorch_cpu.so: cannot open shared object file")
        return load(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", broken)
    done = train(target)
    assert done.code == 2
    assert "torch is there but does not load (libtorch_cpu.so" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["data/shard-00001.npz", "held-out/shard-00000.npz", "data"])
def test_what_is_gone_is_made_again(train: Train, target: Path, tmp_path: Path, gone: str) -> None:
    assert train(target, *SMALL, "--only", "generate").code == 0
    lost = tmp_path / "h.gguf.work" / gone
    shard = (lost / "shard-00000.npz") if lost.is_dir() else lost
    before = np.load(shard)["tokens"]
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    alone = train(target, "--only", "train")
    assert alone.code == 2
    assert "run the command without --only, and they are made again" in alone.err
    assert train(target).code == 0
    assert (np.load(shard)["tokens"] == before).all()


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("run.json", {"epochs": "x"}),
        ("run.json", {"seed": None}),
        ("run.json", {"kind": "foo"}),
        ("run.json", {"prompts": 5}),
        ("data/data.json", {"length": "x"}),
        ("data/data.json", {"length": 100}),
    ],
)
def test_a_damaged_file_is_named(
    train: Train, target: Path, tmp_path: Path, file: str, change: dict[str, Any]
) -> None:
    assert train(target, *SMALL, "--only", "generate").code == 0
    path = tmp_path / "h.gguf.work" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    done = train(target, "--only", "train")
    assert done.code == 2
    assert "is damaged: delete" in done.err
    assert done.err.count("\n") == 1


def test_a_full_disk_is_told_before_and_during(
    train: Train, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(tmp_path)
        patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
        done = train(target, *SMALL)
    assert done.code == 1
    assert "1,500 tokens of talkative.gguf take about" in done.err

    save, saved = np.savez, 0

    def fail(file: Any, **arrays: Any) -> None:
        nonlocal saved
        saved += 1
        if saved == 3:
            raise OSError(28, "No space left on device")
        save(file, **arrays)

    monkeypatch.setattr(np, "savez", fail)
    done = train(target, *SMALL)
    assert done.code == 1
    assert "No space left on device): finished shards are kept" in done.err
    assert len(list((tmp_path / "h.gguf.work" / "data").glob("*.npz"))) == 1
    assert train(target, "--only", "train").code == 0


def test_too_little_memory_to_train(
    train: Train, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(target, *SMALL, "--only", "generate").code == 0
    monkeypatch.setattr(hardware, "available_memory", lambda: 10**8)
    done = train(target, "--only", "train")
    assert done.code == 1
    assert "training this head needs about" in done.err


def test_a_recurrent_target_has_no_head(train: Train, tmp_path: Path) -> None:
    done = train(tiny.write_mamba(tmp_path / "m.gguf"), *SMALL)
    assert done.code == 1
    assert "no head can draft for it" in done.err


@pytest.mark.slow
def test_heads_that_do_not_fit_are_told(train: Train, target: Path, tmp_path: Path) -> None:
    assert train(target, *SMALL).code == 0
    other = write_talker(tmp_path / "other.gguf", tokens=[*TOKENS[:-4], "?!", *TOKENS[-3:]])
    assert "is the training of a head for talkative.gguf" in train(other).err
    assert train(other, *SMALL, "--only", "generate", "--resume", tmp_path / "w").code == 0
    done = train(other, "--only", "evaluate", "--resume", tmp_path / "w")
    assert "another vocabulary: use a head that was made for this target" in done.err
    again = write_talker(tmp_path / "again.gguf", dtype="Q4_0")
    assert train(again, *SMALL, "--only", "generate", "--resume", tmp_path / "v").code == 0
    done = train(again, "--only", "evaluate", "--resume", tmp_path / "v")
    assert done.code == 0, done.err
    assert "note: h.gguf was made for another file of this kind" in done.err
    tiny.truncate(tmp_path / "h.gguf", tmp_path / "short.gguf", 0.9)
    done = train(
        target,
        "--only",
        "evaluate",
        "--resume",
        tmp_path / "h.gguf.work",
        out=tmp_path / "short.gguf",
    )
    assert done.code == 1
    assert "short.gguf is truncated" in done.err
