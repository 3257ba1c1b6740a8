"""Drafts from the text itself: what followed when its end occurred before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

import numpy as np

from spec_cpu import defaults
from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.base import Shape
from spec_cpu.draft.suffix_index import LONGEST, Match, SuffixIndex
from spec_cpu.draft.tree import TokenTree
from spec_cpu.llama.context import Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.pipeline import Pipeline

_WEAK = 0.1  # chance of being reached and accepted below which a token is not proposed
_SHORTER = 0.5  # weight of an occurrence for each token that it matches less than the longest
_PRIOR_COUNT = 8.0  # outcomes that the first guess at a match's worth counts for
_KEPT = 0.99  # of what was learnt, from one outcome to the next


class NgramDrafter:
    """Proposes what followed the longest end of the text that occurred before.

    It looks through reference texts, if any are given, and the whole of the text that is being
    written: the prompt, with the turns before it, and the answer. Where the occurrences went on
    differently the proposal is a tree. Its tokens are chosen, not drawn: q is a point mass.

    Prompt lookup (Saxena 2023), with the chances of a model of partial matches (Cleary and Witten
    1984, "Data Compression Using Adaptive Coding and Partial String Matching"): the share of a
    token among what followed, times how often anything that followed a match so long came true.
    """

    name = defaults.NGRAM
    free = True
    by_features = False
    shape: Shape = "tree"
    model: Model | None = None
    sequence: KVSequence | None = None
    window: int | None = None

    def __init__(
        self,
        references: Iterable[Sequence[int]] = (),
        *,
        ends: AbstractSet[int] = frozenset(),
    ) -> None:
        """Look things up in `references`, too; propose nothing after one of the tokens `ends`."""
        self._index = SuffixIndex()
        for reference in references:
            self._index.extend(reference)
            self._index.separate()
        self._start = len(self._index)  # of the text, in the index
        self._ends = ends
        self._record = _Record()
        self._growth: _Growth | None = None  # of this cycle, if there was a match

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
        shared = self._index.shared_prefix(self._start, prompt)
        self._index.truncate(self._start + shared)
        self._index.extend(prompt[shared:])
        self._growth = None

    def propose(
        self,
        history: Sequence[int],
        k: int,
        pipeline: Pipeline,
        rng: np.random.Generator,
        schedule: Schedule,
    ) -> TokenTree:
        """The `k` likeliest tokens, likeliest first; fewer, or none, where the match is weak."""
        matches = self._index.matches()
        if not matches:
            return TokenTree()
        self._growth = growth = _Growth(self._index, self._record)
        growth.begin(matches)
        while len(growth.tree) < k and growth.waiting:
            growth.add_best(self._ends)
        return growth.tree

    def commit(self, tokens: Sequence[int], features: Rows | None = None) -> None:
        """Add `tokens` to the text, and learn which of the guesses came true."""
        if self._growth is not None:
            self._growth.learn(tokens)
            self._growth = None
        self._index.extend(tokens)

    def close(self) -> None:
        """It holds nothing but memory."""


class _Growth:
    """A tree that grows by its likeliest leaf; `waiting`: what may be added, likeliest first.

    Each node stands for the occurrences that went on as the path to it does.
    """

    def __init__(self, index: SuffixIndex, record: _Record) -> None:
        self.tree = TokenTree()
        self.waiting: list[tuple[float, int, int, int, float, list[tuple[int, float]], int]] = []
        self._tokens = index.tokens
        self._record = record
        self._followers: dict[int, tuple[int, dict[int, int | None]]] = {}
        self._count = 0

    def begin(self, matches: Sequence[Match]) -> None:
        longest = max(match.length for match in matches)
        found = [(match.end + 1, _SHORTER ** (longest - match.length)) for match in matches]
        self._branch(-1, 1.0, found, longest)

    def add_best(self, ends: AbstractSet[int]) -> None:
        reach, _, parent, token, chance, found, length = heappop(self.waiting)
        self.tree.append(token, None, chance, parent)
        node = len(self.tree) - 1
        self._followers[parent][1][token] = node
        if token not in ends:
            self._branch(node, -reach, [(at + 1, weight) for at, weight in found], length + 1)

    def learn(self, tokens: Sequence[int]) -> None:
        """`tokens` followed: go down the tree with them."""
        node: int | None = -1
        for token in tokens:
            if node is None or node not in self._followers:
                return
            length, nodes = self._followers[node]
            self._record.count(length, token in nodes)
            node = nodes.get(token)

    def _branch(self, node: int, reach: float, found: list[tuple[int, float]], length: int) -> None:
        """Queue what stands at the places `found`, after a match of `length` that ends at `node`.

        Args:
            reach: the chance that `node` is accepted.
            found: places in the text and the weight of each.
        """
        tokens, end = self._tokens, len(self._tokens)
        branches: dict[int, list[tuple[int, float]]] = {}
        for place in found:
            if place[0] < end and tokens[place[0]] >= 0:
                branches.setdefault(tokens[place[0]], []).append(place)
        if not branches:
            return
        trust = self._record.chance(length)
        total = sum(weight for members in branches.values() for _, weight in members)
        self._followers[node] = (length, dict.fromkeys(branches))
        for token, members in branches.items():
            chance = trust * sum(weight for _, weight in members) / total
            if reach * chance >= _WEAK:
                self._count += 1
                entry = (-reach * chance, self._count, node, token, chance, members, length)
                heappush(self.waiting, entry)


class _Record:
    """How often what followed a match came true, by the length of the match.

    The first guess is a little above what short answers to short questions showed at 0.8, where
    matches say least.
    """

    def __init__(self) -> None:
        lengths = range(LONGEST + 1)
        self._tried = [_PRIOR_COUNT] * len(lengths)
        self._true = [_PRIOR_COUNT * (1.0 - 3.5 / (n + 4)) for n in lengths]

    def chance(self, length: int) -> float:
        n = min(length, LONGEST)
        return self._true[n] / self._tried[n]

    def count(self, length: int, came_true: bool) -> None:
        n = min(length, LONGEST)
        self._tried[n] = _KEPT * self._tried[n] + 1.0
        self._true[n] = _KEPT * self._true[n] + came_true
