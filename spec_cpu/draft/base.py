"""What every drafter offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence, PrefillProgress
from spec_cpu.sampling import Pipeline
from spec_cpu.schedule import Schedule
from spec_cpu.tree import TokenTree

Shape = Literal["chain", "tree"]
"""A chain of tokens that are drawn one after the other, or a tree of tokens that are chosen."""


class Drafter(Protocol):
    """Proposes the next tokens of a text that it follows along.

    `begin` once a text, then `propose` (when drafting) and `commit` once a cycle.

    Attributes:
        name: what people call it.
        free: proposing takes no time worth counting, so that whatever it proposes is weighed
            afterwards (see `weigh`).
        shape: of what it proposes.
        model: whose passes draft; None: no model's.
        sequence: its own sequence there, to measure what its passes cost.
        window: tokens that it reads, at most, to take up drafting again.
    """

    @property
    def name(self) -> str: ...

    @property
    def free(self) -> bool: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def model(self) -> Model | None: ...

    @property
    def sequence(self) -> KVSequence | None: ...

    @property
    def window(self) -> int | None: ...

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
