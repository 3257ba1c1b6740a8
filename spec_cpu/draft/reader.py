"""Reads what may follow from the logits of a source's passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec_cpu.sampling.logits import Ids, Logits
from spec_cpu.sampling.pipeline import Pipeline

BREADTH = 8  # tokens that follow a node, at most, of those worth asking for


@dataclass(frozen=True, slots=True)
class Reader:
    """How the target's text is sampled, and the end of it that distributions depend on."""

    pipeline: Pipeline
    recent: list[int]

    def likeliest(
        self, row: Logits, path: Sequence[int], ids: Ids | None = None
    ) -> list[tuple[int, float]]:
        """The likeliest tokens after the text and `path`, with probabilities, likeliest first.

        Args:
            row: float32, (n,). `ids`: the target's tokens that it is of; None: all, in order.
        """
        return self.pipeline.likeliest(row, self.history(path), BREADTH, ids)

    def ranked(self, row: Logits, n: int, ids: Ids | None = None) -> list[int]:
        """The `n` likeliest tokens, likeliest first, in whatever follows the text."""
        return self.pipeline.ranked(row, self.recent, n, ids)

    def history(self, path: Sequence[int]) -> list[int]:
        """The tokens before a position that its distribution depends on."""
        return [*self.recent, *path] if self.pipeline.penalizes else []
