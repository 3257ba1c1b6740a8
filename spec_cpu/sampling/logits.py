"""What sampling asks of a whole row of logits, and the answers in NumPy.

`spec_cpu.llama.row_ops` answers the same from the native library, to the bit. That is why the law
of each operation leaves nothing open: of equal logits the first comes first, sums go from the
likeliest on, and e^x of candidates is the C library's (NumPy's own has other last bits on every
processor).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spec_cpu.errors import LogitsError

Logits = NDArray[np.float32]
Floats = NDArray[np.float64]
Ids = NDArray[np.intp]

GAPS = (6.0, 14.0)  # how far below the largest logit candidates are looked for, before everywhere


class RowOps(Protocol):
    """Operations on one row of logits, float32, (n,). One thread at a time.

    All but `penalize` raise LogitsError where the largest is not finite, or one is not a number.
    """

    def argmax(self, logits: Logits) -> int:
        """Where the largest is."""

    def near(self, logits: Logits, gap: float) -> Ids:
        """Where those are that are at most `gap` (in single precision) below the largest."""

    def top_k(self, logits: Logits, k: int) -> Ids:
        """Where the k largest are, or all, descending."""

    def truncate(
        self, logits: Logits, k: int, top_p: float, log_min_p: float, temperature: float
    ) -> tuple[Ids, Floats]:
        """What top-k, top-p, min-p and temperature leave: where it is, and its probabilities."""

    def penalize(
        self,
        logits: Logits,
        recent: Sequence[int],
        repeat: float,
        frequency: float,
        presence: float,
    ) -> None:
        """Change the logits of the tokens among `recent`, in place: see `SamplingParams`."""


class NumpyRowOps:
    """`RowOps` for where there is no library."""

    def argmax(self, logits: Logits) -> int:
        finite_top(logits)
        return int(logits.argmax())

    def near(self, logits: Logits, gap: float) -> Ids:
        return np.flatnonzero(logits >= finite_top(logits) - np.float32(gap))

    def top_k(self, logits: Logits, k: int) -> Ids:
        top = finite_top(logits)
        k = min(k, len(logits))
        close = (np.flatnonzero(logits >= top - np.float32(gap)) for gap in GAPS)
        ids = next((ids for ids in close if len(ids) >= k), np.arange(len(logits)))
        if len(ids) > k:
            values = logits[ids]
            floor = np.partition(values, -k)[-k]
            above, level = ids[values > floor], ids[values == floor]
            ids = np.sort(np.concatenate([above, level[: k - len(above)]]))
        return ids[(-logits[ids]).argsort(kind="stable")]

    def truncate(
        self, logits: Logits, k: int, top_p: float, log_min_p: float, temperature: float
    ) -> tuple[Ids, Floats]:
        ids = self.top_k(logits, k)
        chosen = logits[ids]
        keep = len(ids) - int(chosen[::-1].searchsorted(chosen[0] + np.float32(log_min_p)))
        gaps = chosen.astype(np.float64) - chosen[0]
        if top_p < 1:
            mass = _exp(gaps).cumsum()
            keep = min(keep, int(mass.searchsorted(top_p * mass[-1])) + 1)
        weights = _exp(gaps[:keep] / temperature)
        order = ids[:keep].argsort()
        return ids[:keep][order], weights[order] / weights.cumsum()[-1]

    def penalize(
        self,
        logits: Logits,
        recent: Sequence[int],
        repeat: float,
        frequency: float,
        presence: float,
    ) -> None:
        counts = Counter(token for token in recent if token < len(logits))
        ids = np.fromiter(counts, np.intp, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        hit = logits[ids]
        hit = np.where(hit <= 0, hit * np.float32(repeat), hit / np.float32(repeat))
        logits[ids] = hit - times * np.float32(frequency) - np.float32(presence)


def finite_top(logits: Logits) -> np.float32:
    """The largest logit.

    Raises:
        LogitsError: it is not finite, or one is not a number: the file is damaged.
    """
    top: np.float32 = logits.max(initial=-np.inf)
    if not math.isfinite(top):
        raise LogitsError(
            f"the model's logits are not finite ({top}): its file is damaged, or every token "
            "is forbidden by a logit bias"
        )
    return top


def _exp(values: Floats) -> Floats:
    return np.array([math.exp(value) for value in values.tolist()])
