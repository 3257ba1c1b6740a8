"""Compile the kernels for this machine, once, and find them again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from spec_cpu import machine
from spec_cpu.errors import KernelsError
from spec_cpu.fetch.store import cache_dir
from spec_cpu.progress import Progress

_SOURCE = Path(__file__).parent / "native"
_NAME = "libspec_cpu_kernels.so"
_LOG = "build.log"
_COMPILERS = ("g++", "c++")  # llama.cpp's threads are GNU OpenMP's, and so must ours be
_NEEDED = {"avx2", "fma", "f16c"}
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fopenmp"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-Wno-psabi"),
    # GCC 12 may compute the address of a store as null plus an index. It then takes the store for
    # one through a null pointer, which must not happen, so the function for one that changes
    # nothing, and leaves out the calls: packed weights stayed zero. No store of ours is through
    # null, and not to assume so costs nothing: the code of all other functions is the same.
    "-fno-delete-null-pointer-checks",
)
_LLAMA_CPP = "llama-cpp-python"
_TIMEOUT = 600  # seconds
_OTHER = "stock kernels are used"


@dataclass(frozen=True)
class Build:
    """What the library depends on. Its folder in the cache is named after all of it."""

    compiler: str
    compiler_version: str
    llama_cpp: Path

    @cached_property
    def folder(self) -> Path:
        parts = {
            "source": _source_digest(),
            "compiler": self.compiler_version,
            "flags": _FLAGS,
            "processor": [machine.processor(), *machine.instructions()],
            _LLAMA_CPP: version(_LLAMA_CPP),
        }
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return cache_dir() / "kernels" / digest

    @property
    def library(self) -> Path:
        return self.folder / _NAME

    @property
    def log(self) -> Path:
        """What the compiler said, if it failed."""
        return self.folder / _LOG

    @property
    def digest(self) -> str:
        """Tells this library from any other."""
        return self.folder.name


def find_build() -> Build:
    """How the library is built here, and where it is or will be.

    Raises:
        KernelsError: not for this processor, or there is no compiler.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        raise KernelsError(f"no kernels for {platform.machine()} processors: {_OTHER}")
    missing = _NEEDED.difference(machine.instructions())
    if missing:
        names = ", ".join(sorted(missing))
        raise KernelsError(f"this processor lacks {names}, which the kernels need: {_OTHER}")
    compiler, said = _find_compiler()
    spec = find_spec("llama_cpp")
    try:
        version(_LLAMA_CPP)
    except PackageNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise KernelsError(f"{_LLAMA_CPP} is not installed as a package: {_OTHER}")
    return Build(compiler, said, Path(spec.origin).parent)


def build(*, fresh: bool = False, progress: Progress | None = None) -> Build:
    """Compile the library unless it is there; the result may be loaded.

    Processes that start at once each compile in a folder of their own; whoever is last puts the
    same library in place again, in one step.

    Args:
        fresh: compile even if it is there.

    Raises:
        KernelsError: as `find_build`, or it could not be compiled or stored; says why.
    """
    found = find_build()
    if found.library.is_file() and not fresh:
        return found
    if found.log.is_file() and not fresh:
        raise KernelsError(_did_not_compile(found))
    if progress is not None:
        progress("compiling the kernels for this machine (once)", 0, None)
    try:
        found.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=found.folder) as folder:
            compiled = Path(folder) / _NAME
            _compile(found, compiled)
            os.replace(compiled, found.library)
    except OSError as error:
        reason = error.strerror or str(error)
        raise KernelsError(f"cannot store kernels in {found.folder} ({reason}): {_OTHER}") from None
    return found


def _compile(to: Build, output: Path) -> None:
    command = [
        to.compiler,
        *_FLAGS,
        f"-I{to.llama_cpp.parent / 'include'}",
        *map(str, sorted(_SOURCE.glob("*.cpp"))),
        *("-o", str(output), f"-L{to.llama_cpp / 'lib'}", "-l:libggml-base.so.0"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        said, failed = done.stderr, done.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = f"no end after {_TIMEOUT} s", True
    if failed:
        to.log.write_text(f"{' '.join(command)}\n{said}", encoding="utf-8")
        raise KernelsError(_did_not_compile(to))
    to.log.unlink(missing_ok=True)


def _did_not_compile(to: Build) -> str:
    again = "`spec-cpu kernels build --fresh` tries again"
    return f"the kernels did not compile (see {to.log}): {_OTHER}; {again}"


def _find_compiler() -> tuple[str, str]:
    """A C++ compiler, and what it calls itself."""
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else _COMPILERS:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return path, done.stdout.partition("\n")[0]
    wanted = f"CXX is {chosen}, which does not run" if chosen else "no C++ compiler (g++) was found"
    raise KernelsError(f"{wanted}: {_OTHER}; install one (Debian: apt install g++)")


def _source_digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(_SOURCE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
