"""How well a head does on text that it has not learnt from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from spec_cpu.costs import theory
from spec_cpu.machine import hardware
from spec_cpu.train.batches import Batch

_FAST_BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16"})  # instruction sets that multiply it


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Held-out acceptance of each drafted token, given that those before it were accepted.

    Attributes:
        greedy: at temperature 0: the share of positions where head and target agree.
        overlap: at temperature 1: the mean of sum min(p, q) = 1 - TV, over the likeliest tokens.
    """

    greedy: list[float]
    overlap: list[float]

    @classmethod
    def of(cls, counts: Tensor) -> Acceptance:
        """From what `accepted` counted."""
        greedy = (counts[:, 0] / counts[:, 1].clamp_min(1.0)).tolist()
        overlap = (counts[:, 2] / counts[:, 3].clamp_min(1.0)).tolist()
        return cls(greedy, overlap)

    @property
    def expected(self) -> float:
        """Tokens that a greedy chain of this depth brings, the target's own included."""
        return float(theory.chain_tokens(self.greedy)[-1])


def accepted(output: Callable[[Tensor], Tensor], batch: Batch, hiddens: Sequence[Tensor]) -> Tensor:
    """By depth: greedy acceptances, positions tried; the sum of overlaps, positions counted.

    The text of a batch stands for what was drafted before: where it is the likeliest all along it
    is what a greedy head drafts if it is right. Depth d, from row i: token i + 1 + d, by what step
    d says in row i + d - 1.

    Args:
        output: features to logits of the reduced vocabulary.
        hiddens: the head's features in each step: (B, T, n_embd).

    Returns:
        (steps, 4) float32.
    """
    counts = torch.zeros(len(hiddens), 4)
    right = torch.ones_like(batch.weights, dtype=torch.bool)
    said = batch.weights == 1.0
    greedy = batch.greedy[:, None]
    for step, hidden in enumerate(hiddens):
        with torch.no_grad(), mixed():
            logits = output(hidden).float()
        agrees = logits.argmax(-1) == batch.ids[..., 0]
        q = logits.gather(-1, batch.ids.clamp_min(0)) - logits.logsumexp(-1, keepdim=True)
        overlap = torch.minimum(q.exp(), batch.chances).sum(-1)
        rows = said.clone()
        rows[:, :step] = False
        tried = rows & right & greedy
        counts[step] = torch.stack(
            (
                (agrees & tried).sum(),
                tried.sum(),
                (overlap * (rows & ~greedy)).sum(),
                (rows & ~greedy).sum(),
            )
        )
        # Seen from the next token, what was right here is what was accepted before.
        right = functional.pad(right & agrees, (1, 0))[:, :-1]
    return counts


def mixed() -> torch.autocast:
    """Matrix products in bfloat16, where the processor multiplies that many times as fast."""
    return torch.autocast("cpu", torch.bfloat16, enabled=_has_fast_bfloat16())


@cache
def _has_fast_bfloat16() -> bool:
    return not _FAST_BFLOAT16.isdisjoint(hardware.instructions())
