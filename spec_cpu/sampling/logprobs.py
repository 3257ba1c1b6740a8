"""What a model thought of a token: log probabilities of a row of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu.sampling.logits import Logits


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of the target's probabilities at one position, before any sampler.

    Attributes:
        own: of the token that stands there. `top`: the likeliest tokens, likeliest first.
    """

    own: float
    top: Sequence[tuple[int, float]]


def logprobs(logits: Logits, token: int, top: int) -> Logprobs:
    """Of `token`, and of the `top` likeliest tokens.

    Args:
        logits: float32, (n_vocab,); not changed.
    """
    most = logits.max()
    total = most + np.log(np.exp(logits - most, dtype=np.float64).sum())
    n = min(top, len(logits))
    ids = np.argpartition(-logits, n - 1)[:n] if n else np.empty(0, np.intp)
    ids = ids[np.argsort(-logits[ids], kind="stable")]
    likeliest = [(int(i), float(logits[i] - total)) for i in ids]
    return Logprobs(float(logits[token] - total), likeliest)
