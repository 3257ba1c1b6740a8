"""The compiler: none, one that is gone, one with arguments; and when a person is told of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import time

import pytest
from compiling import Copier, notice_of
from spec_cpu_cli.answer import show_notices
from spec_cpu_cli.main import main

from spec_cpu import notices as notices_module
from spec_cpu.errors import KernelsError
from spec_cpu.kernels import build as build_module
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.kernels.build import build, find_build
from spec_cpu.machine import hardware


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, empty_cache: Path, model: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no-such-compiler" in notice_of(model)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(empty_cache))
    assert "no C++ compiler" in notice_of(model)
    assert "apt install g++" in notice_of(model), "who asks for kernels is told every time"


@pytest.mark.parametrize("how", [["-q"], ["--json", "-q"]], ids=" ".join)
@pytest.mark.usefixtures("empty_cache")
def test_what_is_shown_to_nobody_is_still_to_be_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: Path,
    how: list[str],
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.delenv("SPEC_CPU_KERNELS")
    told = []
    for options in (how, [], ["--json"]):
        args = ["run", "a", "--raw", "-n", "1", "-m", str(model), "-d", "none", *options]
        monkeypatch.setattr(sys, "argv", ["spec-cpu", *args])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        told.append("no-such-compiler" in capsys.readouterr().err)
    assert told == [False, True, False]


@pytest.mark.usefixtures("empty_cache")
def test_a_missing_compiler_is_told_once_a_day(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.delenv("SPEC_CPU_KERNELS")
    notices = [note for note in (Kernels("auto").notice, Kernels("auto").notice) if note]
    show_notices(notices)
    assert capsys.readouterr().err.count("no-such-compiler") == 1
    tomorrow = time() + 86_401
    monkeypatch.setattr(notices_module, "time", lambda: tomorrow)
    show_notices(notices[:1])
    assert "no-such-compiler" in capsys.readouterr().err


def test_what_was_compiled_is_used_once_the_compiler_is_gone(
    copier: Copier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = build()
    copier.script.unlink()
    for compiler in (str(copier.script), ""):
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.setenv("PATH", "" if not compiler else os.environ["PATH"])
        assert build() == found
        assert Kernels("on").notice is None
    with pytest.raises(KernelsError, match="install one"):
        build(fresh=True)
    assert found.is_whole(), "what cannot be made anew is not lost"
    monkeypatch.setattr(sys, "argv", ["spec-cpu", "kernels", "status"])
    with pytest.raises(SystemExit):
        main()
    assert str(found.library) in capsys.readouterr().out


@pytest.mark.parametrize("other", ["sources", "processor", "flags", "damaged", "of no use"])
def test_what_was_compiled_for_something_else_is_not(
    other: str, copier: Copier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = build()
    copier.script.unlink()
    if other == "sources":
        changed = tmp_path / "native"
        changed.mkdir()
        monkeypatch.setattr(build_module, "SOURCE", changed)
    elif other == "processor":
        monkeypatch.setattr(hardware, "processor", lambda: "another")
    elif other == "flags":
        monkeypatch.setattr(build_module, "FLAGS", (*build_module.FLAGS, "-DANOTHER"))
    elif other == "damaged":
        found.library.write_bytes(b"half of one")
    else:
        found.log.write_text("it crashed")
    with pytest.raises(KernelsError, match="install one"):
        build()


def test_a_compiler_with_arguments(copier: Copier, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build()
    monkeypatch.setenv("CXX", f"'{copier.script}' -DA='b c' -g0")
    found = build()
    assert found.compiler == (str(copier.script), "-DA=b c", "-g0")
    assert found.folder != plain.folder
    assert copier.runs == 2


@pytest.mark.parametrize("command", ["'", "no-such-compiler -O2", " "])
def test_a_compiler_that_is_none(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(KernelsError, match="does not run"):
        find_build(fresh=True)


def test_clang_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clang = tmp_path / "clang++"
    clang.write_text("#!/bin/sh\necho clang 1.0\n")
    clang.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_build().compiler == (str(clang),)
