"""What every drafter offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from spec_cpu.llama.sequence import PrefillProgress
from spec_cpu.sampling import Pipeline
from spec_cpu.schedule import Schedule
from spec_cpu.tree import TokenTree


class Drafter(Protocol):
    """Proposes the next tokens of a text that it follows along.

    `begin` once a text, then `propose` (when drafting) and `commit` once a cycle.
    """

    def begin(self, prompt: Sequence[int], progress: PrefillProgress | None = None) -> None:
        """Take up a text. What is already known of it from the last one may be kept."""
        ...

    def propose(
        self,
        history: Sequence[int],
        k: int,
        pipeline: Pipeline,
        rng: np.random.Generator,
        schedule: Schedule,
    ) -> TokenTree:
        """At most `k` tokens to follow `history`, the whole text so far.

        Fewer where `schedule` says that another is not worth its cost.
        """
        ...

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` were added to the text: the accepted ones and the one that follows them."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
