"""Trees: their shape, and that verifying one is exact.

The law is that of the chains (see test_verify): texts written in cycles are distributed as the
target's, whatever tree of whatever shape is proposed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from languages import (
    SAMPLES,
    SURE,
    Language,
    N,
    Text,
    distribution,
    p_value,
    random_language,
)
from trees import leaves

from spec_cpu.cycle.verify import Verdict, verify_chosen, verify_greedy
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.sampling.pipeline import Distribution, point_mass

TreeRule = Callable[[TokenTree, list[Distribution], np.random.Generator], Verdict]
Propose = Callable[[Text, np.random.Generator], TokenTree]
N_VOCAB = 3

BUSHY = TokenTree([5, 6, 7, 8, 9], parents=[ROOT, 0, ROOT, 0, 3])
#  5 - 6
#    - 8 - 9
#  7


def test_its_shape() -> None:
    assert BUSHY.depths == [1, 2, 1, 2, 3]
    assert BUSHY.children(ROOT) == [0, 2]
    assert BUSHY.children(0) == [1, 3]
    assert BUSHY.children(4) == []
    assert BUSHY.path(4) == [0, 3, 4]
    assert BUSHY.path(ROOT) == []
    assert BUSHY.child(0, 8) == 3
    assert BUSHY.child(0, 7) is None
    assert leaves(BUSHY) == 3
    assert not BUSHY.is_chain


def test_a_chain_is_a_tree_without_branches() -> None:
    chain = TokenTree([5, 6])
    chain.append(7, None, 0.5)
    assert chain.is_chain
    assert chain.parents == [ROOT, 0, 1]
    assert chain.depths == [1, 2, 3]
    assert leaves(chain) == 1
    assert [chain.children(i) for i in range(-1, 3)] == [[0], [1], [2], []]
    chain.append(8, None, 0.5, parent=0)
    assert not chain.is_chain
    assert chain.children(0) == [1, 3]
    assert leaves(TokenTree()) == 0


def test_only_a_chain_is_drawn() -> None:
    with pytest.raises(ValueError, match="q"):
        TokenTree([5, 6], [point_mass(5), point_mass(6)], parents=[ROOT, ROOT])


@pytest.mark.parametrize("parents", [[0], [ROOT, 2, 0], [ROOT, 1], [-2, 0], [ROOT, ROOT, 0]])
def test_what_is_no_tree_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match=r"follow|parents"):
        TokenTree([1, 2], parents=parents)


def random_parents(rng: np.random.Generator, n: int) -> list[int]:
    return [int(rng.integers(ROOT, node)) for node in range(n)]


def chosen(seed: int, n_vocab: int, parents: list[int]) -> Propose:
    """Tokens that follow from the text, siblings that differ where there are tokens enough."""

    def propose(text: Text, rng: np.random.Generator) -> TokenTree:
        tree = TokenTree()
        for parent in parents:
            before = (*text, *(tree.tokens[node] for node in tree.path(parent)))
            order = np.random.default_rng([seed, len(before), *before]).permutation(n_vocab)
            siblings = len(tree.children(parent))
            tree.append(int(order[siblings % n_vocab]), None, 0.0, parent)
        return tree

    return propose


def simulate(p: Language, propose: Propose, rule: TreeRule, seed: int) -> Counter[Text]:
    rng = np.random.default_rng(seed)
    drawn: Counter[Text] = Counter()
    for _ in range(SAMPLES):
        text: Text = ()
        while len(text) < N:
            tree = propose(text, rng)
            paths = [[], *(tree.path(node) for node in range(len(tree)))]
            rows = [
                distribution(p((*text, *(tree.tokens[node] for node in path)))) for path in paths
            ]
            verdict = rule(tree, rows, rng)
            assert list(verdict.path) == (tree.path(verdict.path[-1]) if verdict.path else [])
            text = (*text, *(tree.tokens[node] for node in verdict.path), verdict.token)
        drawn[text[:N]] += 1
    return drawn


SHAPES = {
    "siblings": [ROOT, ROOT, ROOT],
    "chain": [ROOT, 0, 1],
    "bushy": [ROOT, 0, ROOT, 0, 3, 2, 2],
    "branch below": [ROOT, 0, 0, 1, 2],
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_chosen_trees_leave_the_targets_distribution(shape: str) -> None:
    p = random_language(N_VOCAB, 21, zeros=0.2)
    drawn = simulate(p, chosen(3, N_VOCAB, SHAPES[shape]), verify_chosen, seed=len(shape))
    assert p_value(p, N_VOCAB, drawn) > SURE


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), n=st.integers(1, 6))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_random_trees_over_random_languages(seed: int, n: int) -> None:
    parents = random_parents(np.random.default_rng(seed), n)
    p, propose = random_language(N_VOCAB, seed, zeros=0.2), chosen(seed, N_VOCAB, parents)
    assert p_value(p, N_VOCAB, simulate(p, propose, verify_chosen, seed)) > SURE / 10


def takes_each_by_its_chance(
    tree: TokenTree, p: list[Distribution], rng: np.random.Generator
) -> Verdict:
    """A wrong rule: each sibling has a draw of its own, though those before it were refused."""
    path: list[int] = []
    node = ROOT
    while True:
        here = p[node + 1]
        taken = (one for one in tree.children(node) if rng.random() < here.prob(tree.tokens[one]))
        child = next(taken, None)
        if child is None:
            return Verdict(path, here.sample(rng))
        path.append(child)
        node = child


def test_the_test_has_the_power_to_see_a_wrong_rule() -> None:
    p: Language = lambda text: np.array([0.3, 0.3, 0.4])  # noqa: E731
    propose = chosen(3, N_VOCAB, [ROOT, ROOT])
    assert p_value(p, N_VOCAB, simulate(p, propose, verify_chosen, 1)) > SURE
    assert p_value(p, N_VOCAB, simulate(p, propose, takes_each_by_its_chance, 1)) < SURE


@given(seed=st.integers(0, 10_000), n=st.integers(0, 8))
@settings(deadline=None)
def test_greedy_descends_along_the_argmax(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    tree = TokenTree(rng.integers(0, 3, n).tolist(), parents=random_parents(rng, n))
    best = rng.integers(0, 3, n + 1).tolist()
    verdict = verify_greedy(tree, lambda row: best[row])
    p = [point_mass(token) for token in best]
    other = verify_chosen(tree, p, rng)
    assert (list(other.path), other.token) == (list(verdict.path), verdict.token)
