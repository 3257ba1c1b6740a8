"""The library in this process: compiled if need be, checked, loaded."""

from __future__ import annotations

import contextlib
import hashlib
from time import time

from spec_cpu.cache import cache_dir
from spec_cpu.kernels.build import Build, build, give_up
from spec_cpu.llama.kernels import UnusableLibraryError, load_kernels
from spec_cpu.progress import Progress

_DAY = 24 * 60 * 60  # seconds


def ready(progress: Progress | None = None) -> Build:
    """The library for this machine, loaded. One that cannot be opened is compiled anew, once.

    Raises:
        KernelsError: there is none that can be used; says why.
        UsageError: no such instruction set as SPEC_CPU_ISA says.
    """
    found = build(progress=progress)
    try:
        load_kernels(found.library)
    except UnusableLibraryError:
        build(fresh=True, progress=progress)
        try:
            load_kernels(found.library)
        except UnusableLibraryError as error:
            raise give_up(found, str(error)) from None
    return found


def said_today(line: str) -> bool:
    """True if `line` was asked about within a day, by any process: once is enough."""
    name = hashlib.sha256(line.encode()).hexdigest()[:16]
    stamp = cache_dir() / "kernels" / f"said-{name}"
    with contextlib.suppress(OSError):
        if time() - stamp.stat().st_mtime < _DAY:
            return True
    with contextlib.suppress(OSError):
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
    return False
