"""The passes of Medusa heads: a feature of the target's in, the logits of every head out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.kernels import Matrix


class MedusaPasses:
    """All heads in one pass. Nothing of it is kept: each pass stands for itself.

    The heads' blocks are small products of our own; the output, which all share, is llama.cpp's: a
    row for each head.

    Attributes:
        context: the heads' own, which nobody else uses.
        rereads: 0, as nothing was read. See `draft.base.DraftPasses`.
    """

    rereads = 0

    def __init__(self, head: MedusaHead, context: Context) -> None:
        self.context = context
        self._scale, self._bias = head.scale, head.bias
        self._width = len(head.scale)
        self._heads = len(head.accuracy)
        self._blocks = Matrix(head.blocks, context.model.library)
        self._positions = range(self._heads)
        self._seq_ids = [(0,)] * self._heads

    def __len__(self) -> int:
        return 0

    def run(self, feature: Rows) -> Rows:
        """The logits of every head.

        Args:
            feature: float32, (n_embd,): what is beyond the heads' width is left out.

        Returns:
            float32, (K, V): a view that lives until the next pass.
        """
        scaled = self._scale * feature[: self._width]
        hidden = _silu(self._blocks.times(scaled[None])[0] + self._bias).reshape(self._heads, -1)
        hidden += scaled
        self.context.truncate(0)
        return self.context.decode_embeddings(hidden, self._positions, self._seq_ids)

    def score(self, tokens: Sequence[int]) -> Rows:
        """Passes over a feature of no meaning, to be timed: the logits of the last."""
        nothing = np.zeros(self._width, np.float32)
        for _ in tokens:
            logits = self.run(nothing)
        return logits

    def prefill(self, tokens: Sequence[int]) -> None:
        """There is nothing to take in."""

    def truncate(self, n: int) -> None:
        """There is nothing to forget."""


def _silu(x: Rows) -> Rows:
    # exp of what is far below 0 is infinite, and the quotient then 0, as it should be.
    with np.errstate(over="ignore"):
        out: Rows = x / (np.float32(1.0) + np.exp(-x))
    return out
