"""The library in this process: compiled if need be, checked, loaded."""

from __future__ import annotations

from spec_cpu.kernels.build import Build, build, give_up
from spec_cpu.llama.kernels import UnusableLibraryError, load_kernels
from spec_cpu.progress import Progress


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
