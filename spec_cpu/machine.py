"""What this machine has: cores to compute on, memory to fill."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from spec_cpu.errors import UsageError

_MOST_THREADS = 512  # GGML_MAX_N_THREADS


def physical_cores() -> int:
    """Physical cores that this process may use: a second thread on a core only slows a pass."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
    siblings = {_siblings(cpu) for cpu in allowed}
    return len(siblings) or 1


def threads(asked: int | None) -> int:
    """How many threads to run on: `asked`, or one a physical core.

    Raises:
        UsageError: no such number of threads.
    """
    if asked is None:
        return physical_cores()
    if not 1 <= asked <= _MOST_THREADS:
        raise UsageError(f"threads must be from 1 to {_MOST_THREADS}, not {asked}")
    return asked


def _siblings(cpu: int) -> str:
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return topology.read_text()
    except OSError:
        return str(cpu)


def available_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines)
    free = next((int(field[1]) * 1024 for field in fields if field[0] == "MemAvailable:"), None)
    allowed = _allowed_memory()
    return min((n for n in (free, allowed) if n is not None), default=None)


def _allowed_memory() -> int | None:
    """Bytes that a container (a control group) still lets this process have; None if any."""
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text())
        return max(0, most - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no group, or "max"
        return None


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
