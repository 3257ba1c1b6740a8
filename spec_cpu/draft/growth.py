"""Token trees from a drafter whose passes give distributions: grown best first, while it pays.

The nodes of such a tree are chosen, not drawn, so that it is exact whatever it looks like. A pass
of the drafter says what may follow each of a few nodes. Those are the ones most likely to be
reached and accepted; the schedule is asked before each pass whether it is worth its time, and for
how many nodes. The best k of all that was found are the tree.

Expanding the likeliest, then ranking all: Li et al. 2024, "EAGLE-2: Faster Inference of Language
Models with Dynamic Draft Trees". There the passes and their widths are fixed; here measured costs
decide.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.tree import ROOT, Paths, TokenTree
from spec_cpu.llama.context import Rows
from spec_cpu.sampling.logits import Ids, Logits
from spec_cpu.sampling.pipeline import Pipeline

Follows = Sequence[tuple[int, float]]
"""The likeliest next tokens and their probabilities, likeliest first."""

BREADTH = 8  # tokens that follow a node, at most, of those worth asking a drafter for
WIDTH = 8  # nodes fed in a pass
_FED = 2  # nodes fed beside the root, at most, for each one wanted


class Expander(Protocol):
    """A drafter's passes, and the tree that it has fed so far in this cycle."""

    def root(self) -> Follows:
        """Take in the text so far, in one pass: what may follow it."""
        ...

    def expand(self, fed: TokenTree, new: range) -> Sequence[Follows]:
        """Feed the nodes `new` of `fed` in one pass: what may follow each.

        Args:
            fed: all nodes fed in this cycle, in that order, `new` the last of them. The parent of a
                new one was fed before.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what may follow from the logits of a drafter's passes.

    Attributes:
        recent: the end of the text that distributions depend on.
        ids: the target's tokens that logits are of, ascending. None: all, in order.
    """

    pipeline: Pipeline
    recent: list[int]
    ids: Ids | None = None

    def root(self, row: Logits) -> Follows:
        """What may follow the text."""
        return self._follows(row, [])

    def nodes(self, rows: Rows, fed: TokenTree, new: range) -> list[Follows]:
        """What may follow each of the nodes `new` of `fed`: a row for each."""
        penalizes = self.pipeline.penalizes
        paths = [fed.path(node) if penalizes else [] for node in new]
        return [
            self._follows(row, [fed.tokens[node] for node in path])
            for row, path in zip(rows, paths, strict=True)
        ]

    def _follows(self, row: Logits, path: list[int]) -> Follows:
        return self.pipeline.likeliest(row, [*self.recent, *path], BREADTH, self.ids)


def most_fed(k: int) -> int:
    """Nodes, at most, that `grow` feeds beside the root for a tree of `k`."""
    return _FED * k


def grow(
    expander: Expander,
    k: int,
    schedule: Schedule,
    *,
    ends: AbstractSet[int],
    paths: int,
) -> tuple[TokenTree, TokenTree]:
    """The `k` nodes most likely to be reached and accepted; fewer where drafting does not pay.

    Args:
        ends: tokens that end the text: nothing follows them.
        paths: from the root to a leaf, at most, of the tree and of what is fed.

    Returns:
        The tree, best first; and what was fed beside the root, in that order: the parents of a
        tree in the drafter's own cache, of which `descend` finds what is accepted.
    """
    growth = _Growth(k, paths, ends)
    if k < 1 or not schedule.worth_pass([], [1.0]):
        return growth.tree([]), growth.fed
    growth.add(ROOT, expander.root(), schedule)
    while True:
        best = growth.best()
        layer = growth.open(best)
        chances = [growth.chances[node] for node in best]
        n = schedule.worth_pass(chances, [growth.chances[i] for i in layer]) if layer else 0
        if not n:
            return growth.tree(best), growth.fed
        layer = layer[:n]
        new = growth.feed(layer)
        for node, follows in zip(layer, expander.expand(growth.fed, new), strict=True):
            growth.add(node, follows, schedule)


class _Growth:
    """All nodes found so far, by the order in which they were found.

    Attributes:
        chances: that a node is reached and accepted.
        fed: those that were fed, as a tree of their own.
    """

    def __init__(self, k: int, paths: int, ends: AbstractSet[int]) -> None:
        self.chances: list[float] = []
        self.fed = TokenTree()
        self._k = k
        self._most_paths = paths
        self._ends = ends
        self._tokens: list[int] = []
        self._confidence: list[float] = []
        self._parents: list[int] = []
        self._ranking: list[tuple[float, int]] = []  # (-chance, node): a parent before its children
        self._floor = 0.0  # chance of the k-th best: what is below is not part of the tree
        self._places = {ROOT: ROOT}  # of what was fed, in `fed`
        self._paths = Paths(paths)

    def add(self, parent: int, follows: Follows, schedule: Schedule) -> None:
        """`parent` may be followed by these tokens."""
        reach = 1.0 if parent == ROOT else self.chances[parent]
        for token, confidence in follows:
            chance = reach * schedule.acceptance(confidence)
            if chance <= self._floor:
                continue
            node = len(self._tokens)
            self._tokens.append(token)
            self._confidence.append(confidence)
            self._parents.append(parent)
            self.chances.append(chance)
            insort(self._ranking, (-chance, node))

    def best(self) -> list[int]:
        """The best k on as many paths as there may be, best first."""
        paths = Paths(self._most_paths)
        chosen: set[int] = {ROOT}
        best: list[int] = []
        for _, node in self._ranking:
            parent = self._parents[node]
            if parent in chosen and paths.extend(parent):
                chosen.add(node)
                best.append(node)
                if len(best) == self._k:
                    self._floor = self.chances[node]
                    break
        return best

    def open(self, best: Sequence[int]) -> list[int]:
        """What of `best` may be fed in the next pass, best first.

        Nothing that follows another node is among the best k.
        """
        room = min(WIDTH, most_fed(self._k) - len(self.fed))
        paths = self._paths.copy()
        layer: list[int] = []
        for node in best:
            if len(layer) == room:
                break
            parent = self._parents[node]
            new = node not in self._places and self._tokens[node] not in self._ends
            new = new and self.chances[node] > self._floor  # else nothing that follows it stays
            if new and parent in self._places and paths.extend(parent):
                layer.append(node)
        return layer

    def feed(self, layer: Sequence[int]) -> range:
        """These are fed now: their places in `fed`."""
        begin = len(self.fed)
        for node in layer:
            parent = self._parents[node]
            self._paths.extend(parent)
            self._places[node] = len(self.fed)
            self.fed.append(self._tokens[node], None, self._confidence[node], self._places[parent])
        return range(begin, len(self.fed))

    def tree(self, best: Sequence[int]) -> TokenTree:
        places = {ROOT: ROOT, **{node: i for i, node in enumerate(best)}}
        return TokenTree(
            [self._tokens[node] for node in best],
            None,
            [self._confidence[node] for node in best],
            [places[self._parents[node]] for node in best],
        )
