"""The laws of growing a tree, on drafts that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.cycle.pinned import Pinned
from spec_cpu.draft.growth import WIDTH, Follows, grow, most_fed
from spec_cpu.draft.tree import ROOT, TokenTree

END = 2
MANY = 10_000


class Made:
    """After any text a distribution of its own over `breadth` tokens; keeps what it is asked."""

    def __init__(self, seed: int, breadth: int = 3, flat: float = 1.0) -> None:
        self.passes: list[int] = []
        self._seed = seed
        self._breadth = breadth
        self._flat = flat

    def follows(self, text: Sequence[int]) -> Follows:
        rng = np.random.default_rng([self._seed, *text])
        p = rng.dirichlet([self._flat] * (self._breadth + 1))[: self._breadth]
        return [(int(i), float(p[i])) for i in (-p).argsort()]

    def root(self) -> Follows:
        assert not self.passes
        self.passes.append(1)
        return self.follows([])

    def expand(self, fed: TokenTree, new: range) -> list[Follows]:
        assert list(new) == list(range(len(fed)))[new.start :]
        assert all(fed.parents[node] < new.start for node in new), "a layer: parents came before"
        self.passes.append(len(new))
        return [self.follows([fed.tokens[i] for i in fed.path(node)]) for node in new]


class OneByOne(Pinned):
    def worth_pass(self, chances: Sequence[float], layer: Sequence[float]) -> int:
        return 1


class Halting(Pinned):
    """Says yes so many times, to so many nodes."""

    def __init__(self, passes: int, width: int) -> None:
        super().__init__(99)
        self.left, self.width = passes, width

    def worth_pass(self, chances: Sequence[float], layer: Sequence[float]) -> int:
        assert list(chances) == sorted(chances, reverse=True)
        assert list(layer) == sorted(layer, reverse=True)
        self.left -= 1
        return min(self.width, len(layer)) if self.left >= 0 else 0


def reach(tree: TokenTree) -> list[float]:
    chances: list[float] = []
    for parent, confidence in zip(tree.parents, tree.confidence, strict=True):
        chances.append(confidence * (1.0 if parent == ROOT else chances[parent]))
    return chances


def texts(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


seeds = st.integers(0, 10**6)


@given(seeds, st.integers(1, 12), st.sampled_from([Pinned, OneByOne]))
@settings(deadline=None, max_examples=60)
def test_it_is_the_best_subtree_of_k_nodes(seed: int, k: int, kind: type[Pinned]) -> None:
    """By an exhaustive look at all texts of up to 4 tokens, none of which can be forgotten."""
    made = Made(seed, breadth=3, flat=0.5)
    every: dict[tuple[int, ...], float] = {}
    for depth in range(1, 5):
        for text in product(range(3), repeat=depth):
            before = every.get(text[:-1], 1.0 if depth == 1 else 0.0)
            every[text] = before * dict(made.follows(text[:-1]))[text[-1]]
    best = sorted(every, key=lambda text: -every[text])[:k]
    if max(map(len, best)) == 4:  # deeper ones might be better
        return
    tree, _ = grow(Made(seed, 3, 0.5), k, kind(k), ends=frozenset(), paths=MANY)
    assert texts(tree) == set(best)
    assert sum(reach(tree)) == pytest.approx(sum(every[text] for text in best))


@given(seeds, st.integers(0, 20), st.integers(1, 6), st.integers(0, 9), st.integers(1, 9))
@settings(deadline=None, max_examples=100)
def test_a_tree_is_in_order_and_never_too_large(
    seed: int, k: int, paths: int, passes: int, width: int
) -> None:
    made = Made(seed, breadth=5)
    tree, fed = grow(made, k, Halting(passes, width), ends=frozenset({END}), paths=paths)
    assert len(tree) <= k
    assert tree.width <= paths
    chances = reach(tree)
    assert chances == sorted(chances, reverse=True), "best first"
    assert tree.pruned(nodes=k, depth=k, paths=paths).tokens == tree.tokens
    assert len(texts(tree)) == len(tree), "siblings differ"
    assert fed.width <= paths
    assert len(fed) <= most_fed(k)
    assert END not in fed.tokens, "nothing follows an end"
    assert len(made.passes) <= passes
    assert all(n <= min(WIDTH, width) for n in made.passes)
    assert sum(made.passes) == len(fed) + (k > 0 and passes > 0)
    inner = {tuple(tree.tokens[i] for i in tree.path(parent)) for parent in tree.parents}
    assert inner - {()} <= texts(fed), "what has children was fed"


@given(seeds, st.integers(1, 10))
@settings(deadline=None, max_examples=50)
def test_it_is_expected_to_bring_what_the_best_chain_does_or_more(seed: int, k: int) -> None:
    made = Made(seed, breadth=4)
    chain, chance, expected = [], 1.0, 0.0
    for _ in range(k):
        token, confidence = made.follows(chain)[0]
        chain.append(token)
        chance *= confidence
        expected += chance
    tree, _ = grow(Made(seed, 4), k, Pinned(k), ends=frozenset(), paths=MANY)
    assert sum(reach(tree)) >= expected - 1e-12


@given(seeds, st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_on_a_single_path_it_is_the_greedy_chain(seed: int, k: int) -> None:
    tree, fed = grow(Made(seed, 4), k, Pinned(k), ends=frozenset(), paths=1)
    assert tree.is_chain
    assert fed.is_chain
    assert len(tree) == k


def test_nothing_is_drafted_where_the_schedule_says_so() -> None:
    for k, passes in ((0, 9), (5, 0)):
        made = Made(0)
        tree, fed = grow(made, k, Halting(passes, 1), ends=frozenset(), paths=8)
        assert (len(tree), len(fed), made.passes) == (0, 0, [])


def test_a_sure_draft_ends_with_k_nodes() -> None:
    """Chances of 1 tie: a parent still comes before its child, and it comes to an end."""

    class Sure(Made):
        def follows(self, text: Sequence[int]) -> Follows:
            return [(7, 1.0)]

    tree, _ = grow(Sure(0), 9, Pinned(9), ends=frozenset(), paths=8)
    assert tree.tokens == [7] * 9
    assert tree.is_chain
