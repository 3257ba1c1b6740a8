"""The texts that drafts are looked up in, those of earlier runs among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spec_cpu.draft.lookup.suffix_index import BREAK, LONGEST, SuffixIndex

EARLIER = 0.1
"""What an occurrence in an earlier text counts for, beside one in the present text.

Were all alike, a step would have 1 % fewer tokens, and 4 % fewer where the present text has nearly
all that comes (a text to edit, an article to quote).
"""

WINDOW = LONGEST + 1  # the longest match and the token after it: what a text is kept for

_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Tokens = NDArray[np.int32]


class Texts:
    """Texts in one index, where the latest occurrence goes first.

    In this order: references, texts of earlier runs, earlier texts of this one, the present text.
    """

    def __init__(self, references: Iterable[Sequence[int]] = (), *, kept: int = 0) -> None:
        """Begin with `references`.

        Args:
            kept: tokens of earlier texts that are kept, each beside `restore`d ones and twice
                that in between; 0: a text is forgotten once another takes its place.
        """
        self.index = SuffixIndex()
        for reference in references:
            self.index.extend(reference)
            self.index.separate()
        self._kept = kept
        self._aside: Tokens = np.empty(0, np.int32)  # forgotten, but to be kept
        self._restored = self._earlier = self._present = len(self.index)  # where each begins

    def begin(self, prompt: Sequence[int]) -> None:
        """Take up `prompt` in place of the present text; what both begin with is not read again."""
        shared = self.index.shared_prefix(self._present, prompt)
        if self._kept and len(self.index) - self._present - shared >= WINDOW:
            self._put_by(shared)
            shared = 0
        self.index.truncate(self._present + shared)
        self.index.extend(prompt[shared:])

    def weight(self, place: int) -> float:
        """What the occurrence at `place` counts for: references count as the present text does."""
        return EARLIER if self._restored <= place < self._present else 1.0

    def state(self) -> dict[str, NDArray[np.int32]]:
        """What later runs may draft from: `tokens`, int32, all texts but the references."""
        restored = np.array(self.index.tokens[self._restored : self._earlier], np.int32)
        texts = (restored, self._aside, self._from(self._earlier))
        return {"tokens": newest(np.concatenate(texts), self._kept)}

    def restore(self, state: Mapping[str, NDArray[np.int32]]) -> None:
        """Take the `state` of an earlier run, in place of one that was restored before.

        The texts of this run stay. An empty state: there was no earlier run.

        Raises:
            ValueError: that is no state of texts.
        """
        tokens = state.get("tokens", np.empty(0, np.int32))
        if tokens.ndim != 1 or tokens.dtype != np.int32:
            raise ValueError("tokens of texts are one row of int32")
        later, present = self._from(self._earlier), self._present - self._earlier
        self.index.truncate(self._restored)
        self.index.extend(tokens)
        if len(tokens):
            self.index.separate()
        self._earlier = len(self.index)
        self.index.extend(later)
        self._present = self._earlier + present

    def forget(self) -> None:
        """Let no text but the references have a say in what is found for those to come.

        `state` has them still, but for those of earlier runs.
        """
        if self._kept:
            self.index.separate()
            self._aside = np.concatenate((self._aside, self._from(self._earlier)))
            if len(self._aside) > 2 * self._kept:
                self._aside = newest(self._aside, self._kept)
        self.index.truncate(self._restored)
        self._earlier = self._present = self._restored

    def _put_by(self, shared: int) -> None:
        """The present text becomes an earlier one, but for the `shared` tokens that go on."""
        end = self._from(self._present + max(0, shared - LONGEST))
        self.index.truncate(self._present)
        self.index.extend(end)
        self.index.separate()
        if len(self.index) - self._earlier > 2 * self._kept:
            earlier = newest(self._from(self._earlier), self._kept)
            self.index.truncate(self._earlier)
            self.index.extend(earlier)
        self._present = len(self.index)

    def _from(self, start: int) -> Tokens:
        """A copy of the index's tokens from `start` on."""
        return np.array(self.index.tokens[start:], np.int32)


def newest(tokens: Tokens, most: int) -> Tokens:
    """The last `most` of `tokens` at most, without what occurs again later.

    Whatever is matched up to `LONGEST` tokens back is found as before, if it is new enough; the
    texts and the pieces of them that are left end in a break each. What was reduced once stays.
    """
    kept = _once(tokens)
    return kept if len(kept) <= most else _once(kept[len(kept) - most :])


def _once(tokens: Tokens) -> Tokens:
    """`tokens` without those that lie in no run of `WINDOW` of which it is the last occurrence."""
    n = len(tokens) - WINDOW + 1
    if n < 1:
        return tokens[:0]
    breaks = np.concatenate(([0], np.cumsum(tokens == BREAK)))
    starts = np.flatnonzero(breaks[WINDOW:] == breaks[:-WINDOW])[::-1]  # of runs, the last first
    value = np.zeros(n, np.uint64)
    for i in range(WINDOW):
        value = value * _FACTOR + tokens[i : i + n].astype(np.uint64)
    _, last = np.unique(value[starts], return_index=True)
    edges = np.zeros(len(tokens) + 2, np.int32)
    edges[starts[last]] += 1
    edges[starts[last] + WINDOW] -= 1
    kept = np.cumsum(edges)[:-1] > 0
    ends = np.append(False, kept[:-1]) & ~kept
    return np.where(kept, np.append(tokens, BREAK), BREAK)[kept | ends].astype(np.int32)
