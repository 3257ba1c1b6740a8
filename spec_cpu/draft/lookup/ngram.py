"""Drafts from the text itself: what followed when its end occurred before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spec_cpu import defaults
from spec_cpu.draft.base import Follows, Path, Scored
from spec_cpu.draft.lookup.suffix_index import LONGEST
from spec_cpu.draft.lookup.texts import Texts
from spec_cpu.llama.context import Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import PrefillProgress

_SHORTER = 0.5  # weight of an occurrence for each token that it matches less than the longest


class NgramSource:
    """What followed the longest end of the text that occurred before.

    It looks through reference texts, if any are given, and the whole of the text that is being
    written: the prompt, with the turns before it, and the answer; perhaps earlier texts. A node
    that no occurrence leads to, since another source proposed it, is looked up anew, as the end of
    a text.

    Prompt lookup (Saxena 2023), with the chances of a model of partial matches (Cleary and Witten
    1984, "Data Compression Using Adaptive Coding and Partial String Matching"): the share of a
    token among what followed, times how often anything that followed a match so long comes true.
    """

    name = defaults.NGRAM
    by_features = False
    model: Model | None = None
    sequence: KVSequence | None = None
    window: int | None = None

    def __init__(self, references: Iterable[Sequence[int]] = (), *, kept: int = 0) -> None:
        """Look things up in `references`, too.

        Args:
            kept: tokens of earlier texts to look things up in as well, see `Texts`.
        """
        self._texts = Texts(references, kept=kept)
        self._index = self._texts.index
        self._found: dict[Path, _Occurrences] = {}  # of this cycle

    def lacks(self, prompt: Sequence[int]) -> int:
        """It wants no features."""
        return 0

    def begin(
        self,
        prompt: Sequence[int],
        progress: PrefillProgress | None = None,
        *,
        features: Rows | None = None,
    ) -> None:
        """Take up `prompt` in place of the last text; what both begin with is not read again."""
        self._texts.begin(prompt)
        self._found = {}

    def follows(self, path: Path) -> Follows:
        """What stands at the places that the text and `path` lead to."""
        found = self._after(path)
        if found is None:
            return ()
        tokens, end = self._index.tokens, len(self._index)
        weights: dict[int, float] = {}
        for place, weight in found.places:
            if place < end and (token := tokens[place]) >= 0:
                weights[token] = weights.get(token, 0.0) + weight
        if not weights:
            return ()
        self._found[path] = found
        trust = _TRUST[min(found.length, LONGEST)] / sum(weights.values())
        return [(token, trust * weight) for token, weight in weights.items()]

    def commit(self, tokens: Sequence[int], scored: Scored) -> None:
        """Add `tokens` to the text."""
        self._index.extend(tokens)
        if self._found:
            self._found = {}

    def forget(self) -> None:
        """Look things up in the references and the texts to come alone."""
        self._texts.forget()

    def state(self) -> Mapping[str, NDArray[np.int32]]:
        """The texts, for a later run."""
        return self._texts.state()

    def restore(self, state: Mapping[str, NDArray[np.int32]]) -> None:
        """Look things up in the texts of an earlier run, too. Errors: as `Texts.restore`."""
        self._texts.restore(state)

    def close(self) -> None:
        """It holds nothing but memory."""

    def _after(self, path: Path) -> _Occurrences | None:
        """Where what follows the text and `path` stands, if that occurred."""
        before = self._found.get(path[:-1]) if path else None
        if before is not None:
            tokens, end, token = self._index.tokens, len(self._index), path[-1]
            places = [
                (place + 1, weight)
                for place, weight in before.places
                if place < end and tokens[place] == token
            ]
            if places:
                return _Occurrences(places, before.length + 1)
        matches = self._index.matches(path)
        if not matches:
            return None
        longest = max(match.length for match in matches)
        places = [
            (match.end + 1, self._texts.weight(match.end) * _SHORTER ** (longest - match.length))
            for match in matches
        ]
        return _Occurrences(places, longest)


class _Occurrences:
    """Places in the index with the weight of each, after a match of `length` tokens."""

    __slots__ = ("length", "places")

    def __init__(self, places: list[tuple[int, float]], length: int) -> None:
        self.places = places
        self.length = length


# How often what followed a match of 0, 1, 2, ... tokens comes true: a little above what short
# answers to short questions showed at 0.8, where matches say least.
_TRUST = [1.0 - 3.5 / (n + 4) for n in range(LONGEST + 1)]
