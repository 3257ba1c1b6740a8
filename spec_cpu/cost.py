"""What a pass costs on this machine."""

from __future__ import annotations

import statistics
from time import perf_counter

from spec_cpu.llama.sequence import KVSequence

_REPEATS = 8
_BUDGET = 0.5  # seconds, beyond the fewest passes
_FEWEST = 2


def plain_step(sequence: KVSequence, token: int) -> float:
    """Seconds of one pass over one token at the end of `sequence`, which is left as it was.

    The median of a few passes, after one that builds the compute graph. The memory must be one that
    can be rolled back.
    """
    depth = len(sequence)
    times: list[float] = []
    while len(times) <= _FEWEST or (len(times) <= _REPEATS and sum(times) < _BUDGET):
        start = perf_counter()
        sequence.score([token])
        times.append(perf_counter() - start)
        sequence.truncate(depth)
    return statistics.median(times[1:])
