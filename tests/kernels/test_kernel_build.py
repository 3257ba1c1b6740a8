"""Compiling the kernels: once, safely, and what happens where that cannot be done."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import tiny
from compiling import Copier, notice_of
from spec_cpu_cli.main import main

import spec_cpu
from spec_cpu.cache import locked
from spec_cpu.errors import KernelsError, UsageError
from spec_cpu.kernels import build as build_module
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.kernels.build import build, find_build
from spec_cpu.llama.kernels import check_formats, load_kernels
from spec_cpu.llama.quantize import quantize
from spec_cpu.machine import hardware

USE = """
from spec_cpu.kernels.autotune import Kernels
kernels = Kernels("on", progress=lambda what, *_: print(what, flush=True))
assert not kernels.notice, kernels.notice
"""

# Arguments: the folder of the sources, a model in Q6_K, one in Q8_0.
WRONG = """
import sys
from pathlib import Path
from spec_cpu_cli.kernels import status
from spec_cpu.kernels import build
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence

build.SOURCE = Path(sys.argv[1])
build.FLAGS = tuple(flag.replace("-O3", "-O1") for flag in build.FLAGS)


def logits(file, library):
    with Model(file, kernels=library) as model, Context(model, n_ctx=64) as context:
        return KVSequence(context).score([260, 261, 262]).copy()


kernels = Kernels("on")
assert "for q6_K failed their self-test" in kernels.notice, kernels.notice
q6_k, q8_0 = map(Path, sys.argv[2:])
same = [(logits(f, kernels.library_for(f)) == logits(f, None)).all() for f in (q6_k, q8_0)]
assert same == [True, False], same
status()
"""


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


def test_it_is_compiled_once(copier: Copier) -> None:
    said: list[str] = []
    found = build(progress=lambda label, *_: said.append(label))
    assert len(said) == 1
    build(progress=lambda label, *_: said.append(label))
    assert len(said) == copier.runs == 1
    assert set(found.folder.iterdir()) == {found.library, found.checksum, found.made_by}


def test_of_two_processes_at_once_one_compiles(copier: Copier) -> None:
    copier.waits()
    command = [sys.executable, "-c", USE]
    with subprocess.Popen(command) as one:
        copier.wait_until_it_runs()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout
            try:
                assert "waiting for another process" in other.stdout.readline()
            finally:
                copier.go_on()
            other.communicate(timeout=600)
    assert (one.returncode, other.returncode) == (0, 0)
    assert copier.runs == 1


def test_what_a_process_that_was_killed_left_is_removed_by_the_next(
    copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    copier.waits()
    child = subprocess.Popen([sys.executable, "-c", USE], start_new_session=True)
    try:
        copier.wait_until_it_runs()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    killed = find_build().folder
    assert list(killed.parent.rglob("*.staging")), "nothing was left: this shows nothing"
    copier.hands_out()
    monkeypatch.setattr(build_module, "FLAGS", (*build_module.FLAGS, "-DANOTHER"))
    assert build().folder != killed
    assert not list(killed.parent.rglob("*.staging"))


def test_another_process_is_not_waited_for_without_end(
    copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "TIMEOUT", 0.1)
    said: list[str] = []
    with (
        locked(find_build().folder.with_name(find_build().library.name), "", lambda *_: None),
        pytest.raises(KernelsError, match="another process"),
    ):
        build(progress=lambda label, *_: said.append(label))
    assert "waiting" in said[0]
    assert not copier.runs


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "another", "no checksum"])
def test_a_library_that_is_damaged_is_made_anew(damage: str, copier: Copier) -> None:
    found = build()
    whole = found.library.read_bytes()
    if damage == "no checksum":
        found.checksum.unlink()
    elif damage == "another":
        shutil.copy(found.llama_cpp / "lib" / "libggml-base.so.0", found.library)
    else:
        content = {"truncated": whole[: len(whole) // 2], "garbage": b"no library", "empty": b""}
        found.library.write_bytes(content[damage])
    assert Kernels("on").notice is None
    assert found.library.read_bytes() == whole
    assert copier.runs == 2


def test_a_library_that_cannot_be_opened_is_made_anew_once(copier: Copier, tmp_path: Path) -> None:
    """It may be as it was compiled, and yet lack what it is linked with."""
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    copier.hands_out(broken)
    for _ in range(2):
        child = subprocess.run([sys.executable, "-c", USE], capture_output=True, check=False)
        assert str(find_build().log) in child.stderr.decode()
        assert copier.runs == 2


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


def test_a_cache_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "file"))
    assert "cannot store kernels" in notice_of(model)


@pytest.mark.parametrize("lacks", ["avx2", "fma", "f16c"])
def test_a_processor_without(lacks: str, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    has = [name for name in hardware.instructions() if name != lacks]
    monkeypatch.setattr(hardware, "instructions", lambda: has)
    assert lacks in notice_of(model)


def test_another_architecture(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "aarch64" in notice_of(model)


def test_another_processor_does_not_get_this_ones_library(monkeypatch: pytest.MonkeyPatch) -> None:
    here = find_build().library
    monkeypatch.setattr(hardware, "instructions", lambda: ["avx2", "f16c", "fma"])
    assert find_build().library != here


@pytest.mark.slow
def test_a_format_that_is_multiplied_wrongly_is_left_to_llama_cpp(
    empty_cache: Path, models: Path, tmp_path: Path
) -> None:
    """The others are not, and a line names it. In a process of its own, for one has one library."""
    wrong = tmp_path / "wrong"
    shutil.copytree(Path(build_module.__file__).parent / "native", wrong)
    formats = (wrong / "formats.h").read_text()
    scale_of_q6_k = "put_half(header, lane, source + 208)"
    assert formats.count(scale_of_q6_k) == 1
    changed = formats.replace(scale_of_q6_k, "put_half(header, lane, source + 206)")
    (wrong / "formats.h").write_text(changed)
    original = tiny.write_llama(models / "wrong.gguf", n_vocab=320, n_embd=256, n_ff=256)
    files = [original.with_stem(f"wrong-{name}") for name in ("Q6_K", "Q8_0")]
    for file in files:
        quantize(original, file, file.stem.removeprefix("wrong-"))
    done = subprocess.run(
        [sys.executable, "-c", WRONG, str(wrong), *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "q6_K       llama.cpp: the kernel failed its self-test (off by" in done.stdout
    assert "q8_0       kernel for " in done.stdout


def test_no_format_is_multiplied_rightly() -> None:
    class Wrong:
        @staticmethod
        def spec_cpu_format(i: int) -> bytes | None:
            return [b"q4_0", b"q8_0", None][i]

        @staticmethod
        def spec_cpu_self_test(i: int, message: ctypes.Array[ctypes.c_char], size: int) -> int:
            message.value = b"off by 3"
            return 1

    with pytest.raises(KernelsError, match=r"q4_0: off by 3; q8_0: off by 3"):
        check_formats(cast(ctypes.CDLL, Wrong()))


def test_a_model_that_fills_the_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels("on")
    monkeypatch.setattr(hardware, "available_memory", lambda: model.stat().st_size)
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
        spec_cpu.load(model, "none", kernels="sometimes")


def test_no_build_without_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "instructions", list)
    with pytest.raises(KernelsError):
        find_build()


def test_the_folder_of_this_machine_is_not_in_the_library() -> None:
    assert os.fsencode(Path.home()) not in build().library.read_bytes()
