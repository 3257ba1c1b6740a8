"""What else the processors did while something was timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import psutil

from spec_cpu.machine import hardware

_LEAST = 0.2  # seconds: Linux counts a processor's time in hundredths, too few of which say nothing
_OTHERS = 0.3  # of a processor: what a quiet system does beside us takes less
_STOLEN = 0.05  # of each thread's time


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the processors that this process may run on, each from a beginning of its own.

    Attributes:
        clock: what passed. `ours`: spent by this process.
        busy: spent by all programs of this system. `stolen`: by others on the machine that this one
            is a guest of; 0 where the system does not tell.
        processors: how many there are.
    """

    clock: float
    ours: float
    busy: float
    stolen: float
    processors: int


def spent(processors: Sequence[int] | None = None) -> Spent:
    """What was spent so far by `processors`; default: all that this process may run on."""
    if processors is None:
        processors = hardware.allowed_processors()
    times = psutil.cpu_times(percpu=True)
    seen = [times[i] for i in processors if i < len(times)]
    stolen = sum(getattr(t, "steal", 0.0) for t in seen)
    busy = sum(_busy(t) for t in seen)
    return Spent(perf_counter(), process_time(), busy, stolen, len(processors))


def disturbance(before: Spent, after: Spent, threads: int) -> str | None:
    """What kept `threads` threads of ours from running between two moments, in a person's words.

    Processors that we leave idle may be used by others: half of them, for two of these may be one
    core. None: nothing that counts, or too short a time to tell.
    """
    seconds = after.clock - before.clock
    if seconds < _LEAST:
        return None
    stolen = (after.stolen - before.stolen) / seconds
    others = (after.busy - before.busy - (after.ours - before.ours)) / seconds
    if stolen > _STOLEN * threads:
        return f"the host of this virtual machine took {stolen / after.processors:.0%} of its time"
    if others > _OTHERS + max(0, after.processors - threads) / 2:
        return f"other programs used {others:.1f} of {after.processors} processors"
    return None


def _busy(times: Any) -> float:
    """Seconds of a processor that this system's programs spent."""
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    # Linux counts those of virtual machines twice.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)
