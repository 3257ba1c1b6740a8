"""`spec-cpu bench`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from program import run_program
from spec_cpu_cli.startup import EXIT_CODE

from spec_cpu.bench.arms import Prompt, Round
from spec_cpu.session import Session

if TYPE_CHECKING:
    from conftest import Models, Program

Bench = Callable[..., int]
PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> Path:
    """A folder to work in, without the settings of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPEC_CPU_CACHE", str(cache))
    monkeypatch.delenv("SPEC_CPU_LLAMA_CPP", raising=False)
    return tmp_path


@pytest.fixture
def asked(readable: Models, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    (home / "p.jsonl").write_text('{"category": "x", "turns": ["a"]}\n' * 3)
    # In so short answers no share would be told, nor an interval of two prompts.
    monkeypatch.setattr("spec_cpu.bench.results.ENOUGH", 1)
    monkeypatch.setattr("spec_cpu.bench.results._FEWEST", 2)
    models = ["-m", readable.target, "-d", readable.draft, "-t", 1, "-c", 512]
    return ["--prompts", "p.jsonl", *models, "-n", 12, "-q", "--temp", 0, "--limit", 2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, asked: list[object]) -> Bench:
    """Runs the command with small models; its exit code."""

    def run(*args: object) -> int:
        return run_program(monkeypatch, "bench", *asked, *args)

    return run


@pytest.mark.slow
def test_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("-k", 3, "--shape", "chain", "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["settings"]["complete"]
    assert report["settings"]["k"] == 3
    assert report["settings"]["shape"] == "chain"
    for part in (report["overall"], report["categories"]["x"]):
        assert part["prompts"] == 2
        assert part["speedup"]["low"] <= part["speedup"]["median"] <= part["speedup"]["high"]
        assert {"alpha", "alpha_exact", "tokens_per_cycle", "speedup_theory", "c"} <= part.keys()
        assert len(part["alpha_by_position"]) == 3
        assert part["k"] == 3
        assert part["k_used"]["3"] >= 1
    costs = report["costs"]
    assert costs["V"][0] == 1.0
    assert len(costs["V"]) >= 9
    assert {"c", "depth", "overhead_seconds", "rebuild_seconds"} <= costs.keys()
    assert report["peak_memory"] > 1e7
    assert not {"sweep", "against"} & report.keys()


@pytest.mark.slow
def test_a_sweep_beside_auto(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--sweep", "k=2..4", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["k"] is None
    assert [point["k"] for point in report["sweep"]] == [2, 3, 4]
    for point in report["sweep"]:
        assert {"low", "median", "high"} == point["speedup"].keys()
        assert point["tokens_per_cycle"] > 0
        for said in (point["predicted"], point["textbook"]):
            assert said is None or said > 0, "None where the times of so short a run say nothing"
        assert 0 <= point["alpha"] <= 1


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_trees(bench: Bench, capsys: pytest.CaptureFixture[str], temperature: float) -> None:
    args = ("--shape", "tree", "--temp", temperature, "-k", 5, "--sweep", "k=4..6", "--json")
    assert bench(*args) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["shape"] == "tree"
    for point in report["sweep"]:
        for said in (point["predicted"], point["textbook"]):
            assert said is None or said > 0, "None where the times of so short a run say nothing"
        assert point["tokens_per_cycle"] <= point["k"] + 1


def test_what_was_chosen_is_said(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--sweep", "k=1..2") == 0
    assert "chosen each step: mostly" in capsys.readouterr().out


def test_a_pinned_k_is_marked_in_the_sweep(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("-k", 2, "--sweep", "k=1..2", "--markdown") == 0
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if line.endswith("◀ |")]
    assert row.startswith("| 2 | ")
    assert "given with -k: 2" in out


@pytest.mark.parametrize("form", [[], ["--markdown"]])
def test_tables(bench: Bench, capsys: pytest.CaptureFixture[str], form: list[str]) -> None:
    assert bench("-k", 3, "--temp", "0,0.8", *form) == 0
    out = capsys.readouterr().out
    assert "temperature 0.8" in out
    for what in ("accepted: the first guess of a step", "a pass over 1 token 1, over 2 "):
        assert out.count(what) == 2


def test_one_prompt_gives_no_interval(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("-k", 3, "--limit", 1, "--markdown") == 0
    (overall,) = [
        line for line in capsys.readouterr().out.splitlines() if "| overall | 1 |" in line
    ]
    assert overall.split(" | ")[5] == "-"


def test_its_prompts_come_with_the_package(
    readable: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Prompt] = []

    def run(_session: Session, prompts: list[Prompt], **_: object) -> Iterator[Round]:
        asked.extend(prompts)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("spec_cpu.bench.arms.run", run)
    models = ("-m", readable.target, "-d", readable.draft, "-t", 1, "-c", 512)
    assert run_program(monkeypatch, "bench", *models, "--limit", 1, "-q") == EXIT_CODE
    assert len({prompt.category for prompt in asked}) == len(asked) == 8


def test_files(bench: Bench, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert bench("-k", 3, "--out", "new/folder", "--json") == 0
    out = capsys.readouterr().out
    assert (home / "new/folder/bench.json").read_text() == out
    assert "| overall | 2 |" in (home / "new/folder/bench.md").read_text()


def test_plots(bench: Bench, home: Path) -> None:
    pytest.importorskip("matplotlib")
    assert bench("-k", 3, "--sweep", "k=1..3", "--plot", "--out", "made") == 0
    names = sorted(path.name for path in (home / "made").glob("*.png"))
    assert names == ["bench-alpha-t0.png", "bench-speedup-t0.png", "bench-sweep-t0.png"]
    assert all((home / "made" / name).read_bytes().startswith(PNG) for name in names)


def test_plots_without_a_folder_go_here(bench: Bench, home: Path) -> None:
    pytest.importorskip("matplotlib")
    assert bench("-k", 3, "--plot", "--limit", 1) == 0
    assert len(list(home.glob("bench-*.png"))) == 2


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["-d", "none"], 2, "compares a draft with none"),
        (["-k", 0], 2, "-k 0 drafts nothing"),
        (["--temp", "warm"], 2, "--temp takes numbers"),
        (["--prompts", "/nowhere"], 2, "/nowhere"),
        *(
            (["--sweep", text], 2, "--sweep takes k=A..B")
            for text in ("k=0..3", "k=3..2", "k=1..17", "1..4", "k=1-4", "k=a..b", "")
        ),
        (["--against", "magic"], 2, "not magic"),
        (["--llama-cpp", "."], 2, "--llama-cpp needs --against llama.cpp"),
        (["--against", "llama.cpp"], 2, "needs --llama-cpp"),
        (["--against", "llama.cpp", "--llama-cpp", "nowhere"], 2, "no folder nowhere"),
        (["--against", "llama.cpp", "--llama-cpp", "."], 2, "has no llama-completion"),
        (["--out", "p.jsonl"], 1, "cannot make the folder p.jsonl"),
        (["--out", "p.jsonl/deeper"], 1, "cannot make the folder p.jsonl/deeper"),
    ],
)
def test_bad_input_is_one_line(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    args: list[object],
    code: int,
    message: str,
) -> None:
    assert bench(*args) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spec-cpu: ")
    assert message in line


def test_plots_need_matplotlib(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("spec_cpu_cli.options.open_session", _never)
    assert bench("--plot") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ".[plot]" in line


def test_an_unwritable_folder_is_found_out_first(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", _denied)
    monkeypatch.setattr("spec_cpu_cli.options.open_session", _never)
    assert bench("--out", "closed") == 1
    assert capsys.readouterr().err == "spec-cpu: cannot write to closed: Permission denied\n"


def _never(*_: object, **__: object) -> None:
    pytest.fail("it began to measure")


def _denied(**_: object) -> None:
    raise PermissionError(13, os.strerror(13))


DECODED = 'echo "decoded   10 tokens in    2.000 seconds, speed:    5.000 t/s"\n'
EVAL = 'echo "eval time = 4000.00 ms / 10 runs (400 ms per token, 2.50 tokens per second)" >&2\n'


def programs(folder: Path, plain: str = EVAL, lookup: str = DECODED) -> Path:
    """Programs with the names of llama.cpp's, that do what the given shell lines say."""
    folder.mkdir()
    lines = {
        "llama-completion": plain,
        "llama-speculative-simple": DECODED,
        "llama-lookup": lookup,
    }
    for name, text in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    return folder


def test_other_programs_are_measured_in_turn(
    bench: Bench, capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_CPU_LLAMA_CPP", str(programs(home / "bin")))
    assert bench("-k", 3, "--against", "llama.cpp", "--against", "llama.cpp", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    speeds = {one["name"]: one["tokens_per_second"] for one in report["against"]}
    assert speeds == {"llama.cpp": 2.5, "llama-speculative-simple": 5.0, "llama-lookup": 5.0}
    for one in report["against"]:
        assert one["speedup"]["median"] > 0
        assert one["ours"]["median"] > 0


def test_the_table_of_other_programs(
    bench: Bench, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    folder = programs(home / "bin")
    assert bench("-k", 3, "--against", "llama.cpp", "--llama-cpp", folder, "--markdown") == 0
    assert "| llama-lookup | 5.0 | " in capsys.readouterr().out


def test_llama_cpp_python_is_measured_in_turn(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("-k", 3, "--against", "llama-cpp-python", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in report["against"]]
    assert names == ["llama-cpp-python", "llama-cpp-python lookup"]


@pytest.mark.parametrize(
    ("lookup", "message"),
    [
        ("echo first >&2\necho worst >&2\nexit 3\n", "llama-lookup failed (3): worst"),
        ("", "llama-lookup told no speed: it wrote nothing"),
        ("echo hello\n", "llama-lookup told no speed: hello"),
    ],
)
def test_a_program_that_fails_is_named(
    bench: Bench, capsys: pytest.CaptureFixture[str], home: Path, lookup: str, message: str
) -> None:
    folder = programs(home / "bin", lookup=lookup)
    assert bench("-k", 3, "--against", "llama.cpp", "--llama-cpp", folder) == 1
    assert capsys.readouterr().err == f"spec-cpu: {message}\n"


@pytest.mark.parametrize(("nth", "code"), [(1, 130), (3, 0)])
def test_ctrl_c_prints_what_is_complete(
    program: Program, asked: list[object], home: Path, nth: int, code: int
) -> None:
    # The n-th time that it is asked, the program presses Ctrl-C for us. The first is the warm-up.
    count = f"echo x >> count\n[ $(wc -l < count) -lt {nth} ] || kill -INT $PPID\n"
    folder = programs(home / "bin", plain=count + EVAL)
    child = program(
        "bench",
        *map(str, asked),
        *("--limit", "9", "-k", "3", "--against", "llama.cpp", "--llama-cpp", str(folder)),
        "--json",
    )
    assert child.code == code, child.err
    assert child.err == ""
    if code == 0:
        assert child.json["settings"]["complete"] is False
        assert child.json["overall"]["prompts"] == 1, "the round that was cut is left out"
