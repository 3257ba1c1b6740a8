"""What this machine has: cores to compute on, memory to fill."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil

from spec_cpu.errors import UsageError
from spec_cpu.machine import control_groups
from spec_cpu.machine.control_groups import ROOT

_MOST_THREADS = 512  # GGML_MAX_N_THREADS


def physical_cores(root: Path = ROOT) -> int:
    """Physical cores that this process may use: a second thread on a core only slows a pass.

    Args:
        root: of the file system in which Linux describes its processors.
    """
    cores = {_siblings(cpu, root) for cpu in allowed_processors()}
    return min(psutil.cpu_count(logical=False) or len(cores), len(cores))


def allowed_processors() -> list[int]:
    """The numbers of the logical processors that this process may run on."""
    affinity = getattr(psutil.Process(), "cpu_affinity", None)
    if affinity is None:  # macOS binds no process to processors
        return list(range(psutil.cpu_count() or 1))
    return list(affinity())


def _siblings(cpu: int, root: Path) -> str:
    """The name of the core that a logical processor is part of; its own where nobody tells."""
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:
        return topology.read_text()
    except OSError:
        return str(cpu)


def usable_cores(root: Path = ROOT) -> int:
    """As `physical_cores`, but no more than a control group's quota keeps busy.

    A group that has used its quota up stands still, all threads of it, until the next period.
    """
    quota = control_groups.cpu_quota(root)
    cores = physical_cores(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def threads(asked: int | None) -> int:
    """How many threads to run on: `asked`, or as many as there are `usable_cores`.

    Raises:
        UsageError: no such number of threads.
    """
    if asked is None:
        return usable_cores()
    if not 1 <= asked <= _MOST_THREADS:
        raise UsageError(f"`threads` must be from 1 to {_MOST_THREADS}, not {asked}")
    return asked


def available_memory(root: Path = ROOT) -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell.

    Args:
        root: of the file system in which Linux describes control groups.
    """
    try:
        free: int | None = psutil.virtual_memory().available
    except (OSError, psutil.Error):
        free = None
    limits = (free, control_groups.free_memory(root))
    return min((n for n in limits if n is not None), default=None)


def processor() -> str:
    """The processor's name, as the system has it."""
    return _processor_field("model name") or platform.processor() or platform.machine()


def instructions() -> list[str]:
    """The names of the instruction sets that this processor has, sorted; Linux's names."""
    return sorted(_processor_field("flags").split())


def _processor_field(name: str) -> str:
    """What the system says of the first processor; empty if it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    fields = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(fields, "")
