"""How fast this machine reads its memory: the least that a step of a large model takes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from spec_cpu.machine import hardware
from spec_cpu.machine.disturbance import disturbance, spent

_BYTES = 1 << 26  # of each thread: more than its part of a cache
_TRIES = 8
_SECONDS = 0.3  # of tries at least: a shorter time says nothing of what else was done


@dataclass(frozen=True, slots=True)
class MemorySpeed:
    """Bytes a second that all usable cores read together.

    Attributes:
        disturbed: what else the machine did meanwhile, in a person's words; None: nothing seen.
    """

    rate: float
    disturbed: str | None


def memory_speed() -> MemorySpeed:
    """Time it: the best of several tries. It takes a third of a second, and 64 MB a core."""
    n = hardware.usable_cores()
    numbers = [np.ones(_BYTES // 4, np.float32) for _ in range(n)]
    before, begin = spent(), perf_counter()
    tries: list[float] = []
    with ThreadPoolExecutor(n) as threads:
        while len(tries) < _TRIES or perf_counter() - begin < _SECONDS:
            tries.append(_seconds(threads, numbers))
    return MemorySpeed(n * _BYTES / min(tries), disturbance(before, spent(), n))


def _seconds(threads: ThreadPoolExecutor, numbers: list[np.ndarray]) -> float:
    start = perf_counter()
    list(threads.map(np.max, numbers))
    return perf_counter() - start
