"""Compiling the kernels: once, safely, and what happens where that cannot be done."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from spec_cpu_cli.main import main

import spec_cpu
from spec_cpu import machine
from spec_cpu.errors import KernelsError, UsageError
from spec_cpu.kernels import build as build_module
from spec_cpu.kernels.build import build, find_build
from spec_cpu.kernels.choose import Kernels
from spec_cpu.llama.kernels import load_kernels

COMPILE = (
    "from spec_cpu.kernels.choose import Kernels; k = Kernels('on'); assert not k.notice, k.notice"
)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that says who it is and then fails."""
    script = tmp_path / "c++"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "false 1.0" && exit\necho "no luck" >&2\nexit 1\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return script


@pytest.fixture
def model(models: Path) -> Path:
    return tiny.write_llama(models / "build.gguf", n_vocab=320, n_embd=64, dtype="F16")


def notice_of(model: Path) -> str:
    """What a person is told who wants kernels and gets stock ones, which work."""
    with spec_cpu.load(model, kernels="on") as session:
        assert session.kernels == "stock"
        assert list(session.generate("a", max_tokens=4, raw=True, ignore_eos=True))
        return " ".join(session.notices)


def test_it_is_compiled_once(empty_cache: Path) -> None:
    said: list[str] = []
    found = build(progress=lambda label, *_: said.append(label))
    stamp = found.library.stat().st_mtime_ns
    assert len(said) == 1
    assert build(progress=lambda label, *_: said.append(label)).library.stat().st_mtime_ns == stamp
    assert len(said) == 1
    assert [file.name for file in found.folder.iterdir()] == [found.library.name]


def test_two_processes_at_once(empty_cache: Path) -> None:
    children = [subprocess.Popen([sys.executable, "-c", COMPILE]) for _ in range(2)]
    assert [child.wait(timeout=300) for child in children] == [0, 0]


@pytest.mark.usefixtures("empty_cache", "compiler")
def test_a_compiler_that_fails(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notice = notice_of(model)
    log = find_build().log
    assert str(log) in notice
    assert "no luck" in log.read_text()
    log.write_text("said before")
    assert str(log) in notice_of(model)
    assert log.read_text() == "said before", "what failed is not tried again at every start"
    monkeypatch.setattr(sys, "argv", ["spec-cpu", "kernels", "status"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert str(log) in capsys.readouterr().out


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, empty_cache: Path, model: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no-such-compiler" in notice_of(model)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(empty_cache))
    assert "no C++ compiler" in notice_of(model)


def test_a_cache_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "file"))
    assert "cannot store kernels" in notice_of(model)


@pytest.mark.parametrize("lacks", ["avx2", "fma", "f16c"])
def test_a_processor_without(lacks: str, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    has = [name for name in machine.instructions() if name != lacks]
    monkeypatch.setattr(machine, "instructions", lambda: has)
    assert lacks in notice_of(model)


def test_another_architecture(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "aarch64" in notice_of(model)


def test_another_processor_does_not_get_this_ones_library(monkeypatch: pytest.MonkeyPatch) -> None:
    here = find_build().library
    monkeypatch.setattr(machine, "instructions", lambda: ["avx2", "f16c", "fma"])
    assert find_build().library != here


def test_a_library_that_is_damaged(empty_cache: Path, model: Path) -> None:
    found = find_build()
    found.folder.mkdir(parents=True)
    found.library.write_bytes(b"not a library")
    assert "cannot load" in notice_of(model)


def test_a_library_that_multiplies_wrongly(
    empty_cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = Path(build_module.__file__).parent / "native"
    wrong = tmp_path / "wrong"
    shutil.copytree(source, wrong)
    formats = (wrong / "formats.h").read_text()
    assert "every_float(-ZERO)" in formats
    (wrong / "formats.h").write_text(formats.replace("every_float(-ZERO)", "every_float(ZERO)"))
    monkeypatch.setattr(build_module, "_SOURCE", wrong)
    assert "self-test" in notice_of(model)


def test_a_model_that_fills_the_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels("on")
    monkeypatch.setattr(machine, "available_memory", lambda: model.stat().st_size)
    assert kernels.library_for(model) is None
    assert "do not fit in memory" in str(kernels.notice)


def test_auto_is_decided_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPEC_CPU_KERNELS")
    said: list[str] = []
    Kernels("auto").library_for(model, lambda label, *_: said.append(label))
    again: list[str] = []
    Kernels("auto").library_for(model, lambda label, *_: again.append(label))
    assert len(said) <= 1
    assert not again


def test_one_build_a_process(tmp_path: Path) -> None:
    """llama.cpp keeps every backend for good, and has room for 16."""
    library = build().library
    copy = tmp_path / library.parent.name / library.name
    copy.parent.mkdir()
    shutil.copy(library, copy)
    load_kernels(library)
    load_kernels(copy)  # the same
    other = copy.parent.rename(tmp_path / "other") / library.name
    with pytest.raises(KernelsError, match="another build"):
        load_kernels(other)


def test_an_unknown_mode(model: Path) -> None:
    with pytest.raises(UsageError, match="auto, on, off"):
        spec_cpu.load(model, kernels="sometimes")


def test_no_build_without_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "instructions", list)
    with pytest.raises(KernelsError):
        find_build()


def test_the_folder_of_this_machine_is_not_in_the_library() -> None:
    assert os.fsencode(Path.home()) not in build().library.read_bytes()
