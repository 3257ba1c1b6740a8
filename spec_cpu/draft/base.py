"""What every source of drafts offers.

A source follows one text and says what may come after it. Sources know nothing of each other, nor
of what passes cost: the cycle asks them for the nodes of the tree that it grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from spec_cpu.draft.reader import Reader
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.logits import Ids, Logits

WIDTH = 8
"""Nodes that a source is asked for in one pass, at most."""

Shape = Literal["chain", "tree"]
"""A chain of tokens that are drawn one after the other, or a tree of tokens that are chosen."""

Path = tuple[int, ...]
"""Drafted tokens that follow the text, from the first on; empty: the text itself."""

Follows = Sequence[tuple[int, float]]
"""Tokens that may come next, and how sure the source is of each: a chance, not yet calibrated."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A pass of the target, for sources to learn from. Valid during the call.

    Attributes:
        fed: the tokens of the pass: the text's last one before it, then the drafted ones.
        logits: after each: float32, (len(fed), n_vocab).
        features: the final hidden states that the added tokens were drawn from, (added, n_embd);
            None where no source wants them.
    """

    fed: Sequence[int]
    logits: Rows
    features: Rows | None = None


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


class Source(Protocol):
    """Follows a text: `begin` once a text, then `commit` once a cycle.

    Attributes:
        name: what people call it.
        model: whose passes draft; None: no model's.
        sequence: its own passes, to measure what they cost; None: it takes none.
        window: tokens that it reads, at most, to take up drafting again.
        by_features: does it draft from the target's final hidden states?
    """

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> Model | None: ...

    @property
    def sequence(self) -> DraftPasses | None: ...

    @property
    def window(self) -> int | None: ...

    @property
    def by_features(self) -> bool: ...

    def lacks(self, prompt: Sequence[int]) -> int:
        """Of how many rows at the prompt's end, before its last token, it wants the features."""
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
            features: if any source wants some: the target's hidden states of the last rows before
                the last token, (rows, n_embd): as many as this one lacks at least, if there are.
        """
        ...

    def commit(self, tokens: Sequence[int], scored: Scored) -> None:
        """`tokens` were added to the text: the accepted ones and the one that follows them."""
        ...

    def forget(self) -> None:
        """Know no more of other texts than when it was made."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class Lookup(Source, Protocol):
    """A source that takes no passes: it is asked at every node that the tree grows at."""

    def follows(self, path: Path) -> Follows:
        """What may follow the text and `path`. Asked for a node only after its parent."""
        ...


class Passes(Source, Protocol):
    """A source that takes passes of a model or a head: it is asked where that pays.

    Attributes:
        shape: does it draw a chain from its q where the text is sampled, or are its likeliest
            tokens chosen?
        layers: how deep below the nodes that it is asked for a pass sees.
        paths: from the root to a leaf, at most, of the nodes that it is asked for.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def layers(self) -> int: ...

    @property
    def paths(self) -> int: ...

    def able(self, reader: Reader, nodes: int) -> int:
        """How many nodes it can have fed in this cycle, at most `nodes`; 0: it cannot draft."""
        ...

    def expand(self, paths: Sequence[Path], reader: Reader) -> list[Follows]:
        """What may follow each of `paths`, found in one pass.

        In a cycle first the text itself is asked for, alone, then nodes whose parents were.

        Raises:
            LogitsError: the logits are not finite.
        """
        ...


class Drawing(Passes, Protocol):
    """A source whose passes give distributions to draw from.

    Attributes:
        ids: the target's tokens that logits are of, ascending. None: all, in order.
        ends: tokens after which it drafts nothing.
    """

    @property
    def ids(self) -> Ids | None: ...

    def logits(self, path: Path) -> Logits:
        """What follows the text and `path`, which is the path asked for before and a token more."""
        ...
