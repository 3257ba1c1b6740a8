"""`spec-cpu plan --plot`: a PNG, or one line before anything is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tiny
from program import run_program

if TYPE_CHECKING:
    from conftest import Models

Plan = Callable[..., int]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, readable: Models, tmp_path: Path, cache: Path) -> Plan:
    """Runs the command with small models; its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPEC_CPU_CACHE", str(cache))
    models = ["-m", readable.target, "-d", readable.draft, "-t", 1, "-c", 256, "--max-k", 2]

    def run(*args: object) -> int:
        return run_program(monkeypatch, "plan", *models, "-q", *args)

    return run


def test_a_plot(plan: Plan, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plan("--plot", "curve.png") == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("curve.pdf", 2, "ends in .png, not curve.pdf"),
        ("curve", 2, "ends in .png, not curve"),
        ("nowhere/curve.png", 1, "cannot write to nowhere"),
    ],
)
def test_a_name_that_will_not_do(
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr("spec_cpu_cli.plots.check_matplotlib", lambda: None)
    monkeypatch.setattr("spec_cpu_cli.options.open_session", _never)
    assert plan("--plot", name) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_matplotlib_is_missing(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("spec_cpu_cli.options.open_session", _never)
    assert plan("--plot", "curve.png") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ".[plot]" in line


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_plan_run_and_json_agree_that_a_recurrent_target_cannot_be_drafted_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    flags: list[str],
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    mamba = tiny.write_mamba(tmp_path / "m.gguf", n_vocab=320, n_ctx=2048)
    assert run_program(monkeypatch, "plan", "-m", mamba, *flags) == 0
    planned = capsys.readouterr()
    if flags:
        assert json.loads(planned.out)["speculate"] is False
    assert "Do not guess ahead" in planned.out
    assert run_program(monkeypatch, "run", "-m", mamba, "-n", 3, "hi", *flags) == 0
    ran = capsys.readouterr()
    for err in (planned.err, ran.err):
        assert "not guessing ahead" in err
        assert "guessing from" not in err
    if flags:
        assert "recurrent memory" in json.loads(ran.out)["why_plain"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_where_nothing_guesses_nothing_is_timed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    readable: Models,
    cache: Path,
    flags: list[str],
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(cache))
    monkeypatch.setattr("spec_cpu.session.Session.calibrate", _never)
    assert run_program(monkeypatch, "plan", "-m", readable.target, "-d", "none", *flags) == 0
    out = capsys.readouterr().out
    assert "Nothing guesses ahead" in (json.loads(out)["verdict"] if flags else out)
    assert "accepted" not in out


def test_of_a_text_no_share_is_made_up(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("-d", "ngram") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "depends on how much a text repeats itself" in said
    assert "Guesses are looked up in the text" in said
    assert "same family" not in said
    assert plan("-d", "ngram", "--json") == 0
    assert json.loads(capsys.readouterr().out)["acceptance"] is None


def _never(*_: object, **__: object) -> None:
    pytest.fail("it began to measure")
