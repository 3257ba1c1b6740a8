"""The mean of the final hidden states of a text, worked out part by part between cycles."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence

PART = 64  # tokens of a pass: llama.cpp works out the logits of each


class Embedding:
    """One text whose mean is wanted.

    Attributes:
        future: of the mean: float32, (n_embd,).
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        """Of `tokens`, one at least."""
        self.future: Future[Rows] = Future()
        self._tokens = tokens
        self._read = 0
        self._total: NDArray[np.float64] = np.zeros(1)  # (n_embd,), once a part was read

    def read_part(self, sequence: KVSequence) -> bool:
        """Read the next part in `sequence`, which nobody else uses meanwhile; is that all?"""
        sequence.truncate(self._read)
        part = self._tokens[self._read : self._read + PART]
        sequence.score(part)
        rows = sequence.context.hidden_rows(len(part))
        self._total = self._total + rows.sum(axis=0, dtype=np.float64)
        self._read += len(part)
        if self._read < len(self._tokens):
            return False
        mean: Rows = (self._total / len(self._tokens)).astype(np.float32)
        self.future.set_result(mean)
        return True


def sequence_for_embeddings(model: Model, ctx: int, threads: int | None) -> KVSequence:
    """A sequence that gives hidden states. Errors: as `Context`."""
    return KVSequence(
        Context(
            model,
            n_ctx=ctx,
            max_outputs=PART,
            n_batch=PART,
            threads=threads,
            hidden=True,
        )
    )
