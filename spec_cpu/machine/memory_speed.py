"""How fast this machine reads its memory: the least that a step of a large model takes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np

from spec_cpu.machine import hardware

_BYTES = 1 << 26  # of each thread: more than its part of a cache
_TRIES = 8


def memory_speed() -> float:
    """Bytes a second that all usable cores read together: the best of several tries.

    It takes about a tenth of a second, and 64 MB a core.
    """
    n = hardware.usable_cores()
    numbers = [np.ones(_BYTES // 4, np.float32) for _ in range(n)]
    with ThreadPoolExecutor(n) as threads:
        best = min(_seconds(threads, numbers) for _ in range(_TRIES))
    return n * _BYTES / best


def _seconds(threads: ThreadPoolExecutor, numbers: list[np.ndarray]) -> float:
    start = perf_counter()
    list(threads.map(np.max, numbers))
    return perf_counter() - start
