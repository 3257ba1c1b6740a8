"""What every drafter offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.tree import TokenTree
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.pipeline import Pipeline

Shape = Literal["chain", "tree"]
"""A chain of tokens that are drawn one after the other, or a tree of tokens that are chosen."""


class DraftPasses(Protocol):
    """A draft's passes, to be timed: a `KVSequence`, or what a head feeds in its place.

    Attributes:
        rereads: tokens that a cycle's first step takes in anew, as it drafted them before.
    """

    @property
    def context(self) -> Context: ...

    @property
    def rereads(self) -> int: ...

    def __len__(self) -> int: ...

    def score(self, tokens: Sequence[int]) -> Rows:
        """A draft step that takes in all of `tokens`: the logits after the last, at least."""
        ...

    def prefill(self, tokens: Sequence[int]) -> None:
        """Take in `tokens`, without logits."""
        ...

    def truncate(self, n: int) -> None:
        """Keep the first `n` tokens."""
        ...


class Drafter(Protocol):
    """Proposes the next tokens of a text that it follows along.

    `begin` once a text, then `propose` (when drafting) and `commit` once a cycle.

    Attributes:
        name: what people call it.
        free: proposing takes no time worth counting, so that whatever it proposes is weighed
            afterwards (see `weigh`).
        shape: of what it proposes.
        model: whose passes draft; None: no model's.
        sequence: its own passes, to measure what they cost.
        window: tokens that it reads, at most, to take up drafting again.
        by_features: does it draft from the target's final hidden states?
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
    def sequence(self) -> DraftPasses | None: ...

    @property
    def window(self) -> int | None: ...

    @property
    def by_features(self) -> bool: ...

    def lacks(self, prompt: Sequence[int]) -> int:
        """Of how many rows at the prompt's end, before its last token, it wants the features.

        None where it does not draft from them.
        """
        ...

    def begin(
        self,
        prompt: Sequence[int],
        progress: PrefillProgress | None = None,
        *,
        features: Rows | None = None,
    ) -> None:
        """Take up a text. What is already known of it from the last one may be kept.

        Args:
            features: if any drafter wants some: the target's hidden states of the last rows before
                the last token, (rows, n_embd): as many as this one lacks at least, if there are.
        """
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

    def commit(self, tokens: Sequence[int], features: Rows | None = None) -> None:
        """`tokens` were added to the text: the accepted ones and the one that follows them.

        Args:
            features: if it wants any: the target's hidden states of the rows that they were drawn
                from, (len(tokens), n_embd), valid during the call.
        """
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
