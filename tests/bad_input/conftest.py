"""Surroundings without anything of the user's, and models to ask."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from calling import Call, Outcome
from program import run_program


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No catalogue of the user's, an empty cache, a folder of one's own; no debugger on a crash."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GGML_NO_BACKTRACE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nothing here is worth a download
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the program in this process; `stdin` are bytes, or None for a closed one."""

    def run(*args: object, stdin: bytes | None = b"") -> Outcome:
        stream = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", stream)
        capsys.readouterr()
        code = run_program(monkeypatch, *args)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def pair(tiny_target: Path, tiny_draft: Path) -> list[str]:
    """Options for a quick answer by two tiny models, always the same one."""
    models = ["-m", str(tiny_target), "-d", str(tiny_draft)]
    return [*models, "-k", "4", "-n", "5", "--seed", "1", "-t", "1"]


@pytest.fixture
def plain(tiny_target: Path) -> list[str]:
    """Likewise, by the target alone."""
    return ["-m", str(tiny_target), "-d", "none", "-n", "5", "--seed", "1", "-t", "1"]
