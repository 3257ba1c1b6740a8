"""Compile the kernels for this machine, once, and find them again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spec_cpu.cache import cache_dir, locked, staging
from spec_cpu.errors import KernelsError
from spec_cpu.kernels import isa as instruction_sets
from spec_cpu.kernels.isa import InstructionSet
from spec_cpu.machine import hardware
from spec_cpu.progress import Progress

SOURCE = Path(__file__).parent / "native"
_NAME = "libspec_cpu_kernels.so"
_LOG = "build.log"
_MADE_BY = "compiler.json"
_COMPILERS = ("g++", "c++", "clang++")
FLAGS = (
    *("-std=c++17", "-O3", "-mtune=native", "-fPIC", "-fvisibility=hidden", "-Wno-psabi"),
    # GCC 12 may compute the address of a store as null plus an index. It then takes the store for
    # one through a null pointer, which must not happen, so the function for one that changes
    # nothing, and leaves out the calls: packed weights stayed zero. No store of ours is through
    # null, and not to assume so costs nothing: the code of all other functions is the same.
    "-fno-delete-null-pointer-checks",
)
_LLAMA_CPP = "llama-cpp-python"
TIMEOUT = 600  # seconds that compiling may take, and that another process is waited for
_OTHER = "llama.cpp's own code computes, which is slower"


@dataclass(frozen=True)
class Build:
    """What the library depends on. Its folder in the cache is named after all of it."""

    compiler: tuple[str, ...]  # with the arguments that CXX has behind it
    compiler_version: str
    isa: InstructionSet
    llama_cpp: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """How its files are compiled."""
        return (*FLAGS, *self.isa.flags, f"-I{self.llama_cpp.parent / 'include'}")

    @property
    def libraries(self) -> tuple[str, ...]:
        """What it is linked with: by the compiler's flags for it."""
        # GNU OpenMP whatever the compiler, for its threads are llama.cpp's: see threads.h.
        return (f"-L{self.llama_cpp / 'lib'}", "-l:libggml-base.so.0", "-l:libgomp.so.1")

    @cached_property
    def folder(self) -> Path:
        by = _digest([self.compiler_version, *self.compiler[1:]])[:8]
        return cache_dir() / "kernels" / f"{_digest_here(self.isa)}-{by}"

    @property
    def library(self) -> Path:
        return self.folder / _NAME

    @property
    def checksum(self) -> Path:
        """What the library's SHA-256 was when it was compiled."""
        return self.library.with_suffix(".sha256")

    @property
    def made_by(self) -> Path:
        """The compiler that made the library, and its version: it may be gone later on."""
        return self.folder / _MADE_BY

    @property
    def log(self) -> Path:
        """What the compiler said, if it failed."""
        return self.folder / _LOG

    @property
    def digest(self) -> str:
        """Tells this library from any other."""
        return self.folder.name

    def is_whole(self) -> bool:
        """True if the library is there as it was compiled: to open half of one can be fatal."""
        try:
            return _sha256(self.library) == self.checksum.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return False


def find_build(
    isa: str | None = None, compiler: str | None = None, *, fresh: bool = False
) -> Build:
    """How the library is built here, and where it is or will be.

    Without a compiler it is one that was compiled here before, if there is one.

    Args:
        isa: the instruction set; default: what SPEC_CPU_ISA says, or the best of this machine.
        compiler: as a shell would take it, with arguments; default: what CXX says, or one that is
            found.
        fresh: it is to be compiled, whatever there is.

    Raises:
        KernelsError: not for this processor, or there is no compiler and nothing from before.
        UsageError: no such instruction set.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise KernelsError(f"no kernels for {platform.machine()} processors: {_OTHER}")
    chosen = instruction_sets.choose(isa)
    spec = find_spec("llama_cpp")
    try:
        version(_LLAMA_CPP)
    except PackageNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise KernelsError(f"{_LLAMA_CPP} is not installed as a package: {_OTHER}")
    llama_cpp = Path(spec.origin).parent
    try:
        command, said = _find_compiler(compiler or os.environ.get("CXX"))
    except KernelsError:
        kept = None if fresh else _kept(chosen, llama_cpp)
        if kept is None:
            raise
        return kept
    return Build(command, said, chosen, llama_cpp)


def build(
    isa: str | None = None, *, fresh: bool = False, progress: Progress | None = None
) -> Build:
    """Find how the library is built here, and `make` it.

    Raises:
        KernelsError: as `find_build` and `make`.
        UsageError: as `find_build`.
    """
    return make(find_build(isa, fresh=fresh), fresh=fresh, progress=progress)


def make(found: Build, *, fresh: bool = False, progress: Progress | None = None) -> Build:
    """Compile the library unless it is there, as it was compiled; the result may be loaded.

    Of processes that start at once one compiles and the others wait for it.

    Args:
        fresh: compile even if it is there.

    Raises:
        KernelsError: it could not be compiled or stored; says why.
    """
    report = progress or (lambda *_: None)
    if not fresh and _is_done(found):
        return found
    with _storing(found, report) as shared:
        if fresh or not _is_done(found):  # else another process did it meanwhile
            report("compiling code for this processor (once, a minute or two)", 0, None)
            found.folder.mkdir(exist_ok=True)
            with staging(shared) as folder:
                compiled = folder / _NAME
                _compile(found, compiled)
                found.checksum.write_text(_sha256(compiled), encoding="utf-8")
                made_by = json.dumps([found.compiler, found.compiler_version])
                found.made_by.write_text(made_by, encoding="utf-8")
                os.replace(compiled, found.library)
    return found


def give_up(on: Build, reason: str) -> KernelsError:
    """Remember that this build is of no use here, so that later starts do not try it again."""
    with suppress(OSError):
        on.log.write_text(reason, encoding="utf-8")
    return _failed(on)


def _is_done(found: Build) -> bool:
    if found.log.is_file():
        raise _failed(found)
    return found.is_whole()


@contextmanager
def _storing(found: Build, report: Progress) -> Iterator[Path]:
    """Hold the lock for compiling. What a process that was killed left behind, the next one
    removes, even if it is of another version."""
    shared = found.folder.parent / _NAME
    try:
        with locked(shared, "compile the kernels", report, seconds=TIMEOUT):
            yield shared
    except TimeoutError:
        raise KernelsError(
            f"another process has been compiling the kernels for {TIMEOUT} s: {_OTHER}"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise KernelsError(f"cannot store kernels in {found.folder} ({reason}): {_OTHER}") from None


def _compile(to: Build, output: Path) -> None:
    sources = map(str, sorted(SOURCE.glob("*.cpp")))
    command = [*to.compiler, *to.flags, "-shared", *sources, "-o", str(output), *to.libraries]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "TMPDIR": str(output.parent)},  # gone with it, however this ends
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        said, failed = done.stderr, done.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = f"no end after {TIMEOUT} s", True
    if failed:
        raise give_up(to, f"{' '.join(command)}\n{said}")
    to.log.unlink(missing_ok=True)


def _failed(build: Build) -> KernelsError:
    again = "`spec-cpu kernels build --fresh` tries again"
    return KernelsError(f"the kernels could not be built (see {build.log}): {_OTHER}; {again}")


def _find_compiler(chosen: str | None) -> tuple[tuple[str, ...], str]:
    """A C++ compiler with its arguments, and what it calls itself."""
    for command in (chosen,) if chosen else _COMPILERS:
        try:
            name, *arguments = shlex.split(command)
        except ValueError:  # nothing, or a quotation mark without its other one
            continue
        path = shutil.which(name)
        if path is None:
            continue
        words = (path, *arguments)
        try:
            done = subprocess.run(
                [*words, "--version"], capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return words, done.stdout.partition("\n")[0]
    names = "g++ or clang++"
    wanted = f"{chosen} (see CXX) does not run" if chosen else f"no C++ compiler ({names})"
    raise KernelsError(f"{wanted}: {_OTHER}; install one (Debian, Ubuntu: apt install g++)")


def _kept(isa: InstructionSet, llama_cpp: Path) -> Build | None:
    """A library of these sources for this machine, by a compiler that may be gone."""
    for record in (cache_dir() / "kernels").glob(f"{_digest_here(isa)}-*/{_MADE_BY}"):
        with suppress(OSError, ValueError, TypeError):
            compiler, said = json.loads(record.read_text(encoding="utf-8"))
            found = Build(tuple(compiler), str(said), isa, llama_cpp)
            if found.folder == record.parent and found.is_whole() and not found.log.is_file():
                return found
    return None


def _digest_here(isa: InstructionSet) -> str:
    """What a library depends on besides the compiler."""
    flags, processor = [*FLAGS, *isa.flags], [hardware.processor(), *hardware.instructions()]
    return _digest([_source_digest(), flags, processor, version(_LLAMA_CPP)])


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _source_digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
