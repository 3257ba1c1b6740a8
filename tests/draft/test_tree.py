"""Trees: their shape, what is left when one is pruned, and that verifying one is exact.

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
from test_verify import (
    SAMPLES,
    SURE,
    Language,
    N,
    Text,
    cases,
    distribution,
    p_value,
    random_language,
)

from spec_cpu.cycle.verify import (
    Verdict,
    verify_chosen,
    verify_greedy,
    verify_siblings,
    verify_tokens,
)
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
    assert BUSHY.width == 3
    assert not BUSHY.is_chain


def test_a_chain_is_a_tree_without_branches() -> None:
    chain = TokenTree([5, 6])
    chain.append(7, None, 0.5)
    assert chain.is_chain
    assert chain.parents == [ROOT, 0, 1]
    assert chain.depths == [1, 2, 3]
    assert chain.width == 1
    assert [chain.children(i) for i in range(-1, 3)] == [[0], [1], [2], []]
    chain.append(8, None, 0.5, parent=0)
    assert not chain.is_chain
    assert chain.children(0) == [1, 3]
    assert TokenTree().width == 0


@pytest.mark.parametrize("parents", [[0], [ROOT, 2, 0], [ROOT, 1], [-2, 0], [ROOT, ROOT, 0]])
def test_what_is_no_tree_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match=r"follow|parents"):
        TokenTree([1, 2], parents=parents)


def random_parents(rng: np.random.Generator, n: int) -> list[int]:
    return [int(rng.integers(ROOT, node)) for node in range(n)]


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(0, 20),
    nodes=st.integers(0, 20),
    depth=st.integers(0, 6),
    paths=st.integers(1, 5),
)
def test_a_pruned_tree_fits_and_keeps_its_paths(
    seed: int, n: int, nodes: int, depth: int, paths: int
) -> None:
    rng = np.random.default_rng(seed)
    q = [point_mass(100 + i) for i in range(n)]
    tree = TokenTree([*range(100, 100 + n)], q, [0.5] * n, random_parents(rng, n))
    small = tree.pruned(nodes=nodes, depth=depth, paths=paths)
    assert len(small) <= nodes
    assert small.width <= paths
    assert max(small.depths, default=0) <= depth
    assert len(small.confidence) == len(small.q or []) == len(small)
    for i, token in enumerate(small.tokens):
        before = [tree.tokens[node] for node in tree.path(token - 100)]
        assert [small.tokens[node] for node in small.path(i)] == before, "no path is mended"
        assert small.q is not None
        assert small.q[i].prob(token) == 1
    if small.width < paths and len(small) < nodes and depth >= n:
        assert len(small) == n, "nothing is left out that fits"


def test_the_best_nodes_are_kept() -> None:
    assert BUSHY.pruned(nodes=3, depth=9, paths=9).tokens == [5, 6, 7]
    assert BUSHY.pruned(nodes=9, depth=9, paths=2).tokens == [5, 6, 7]
    assert BUSHY.pruned(nodes=9, depth=9, paths=1).tokens == [5, 6]
    assert BUSHY.pruned(nodes=9, depth=2, paths=9).tokens == [5, 6, 7, 8]
    assert BUSHY.pruned(nodes=9, depth=9, paths=9) is BUSHY


def grown(
    parents: list[int],
    text: Text,
    draw: Callable[[Text, list[int]], tuple[int, Distribution]],
    *,
    drawn: bool,
) -> TokenTree:
    """A tree of this shape; `draw` gives a token after a path, beside the siblings there are."""
    tree = TokenTree(q=[] if drawn else None)
    for parent in parents:
        before = (*text, *(tree.tokens[node] for node in tree.path(parent)))
        siblings = [tree.tokens[node] for node in tree.children(parent)]
        token, q = draw(before, siblings)
        tree.append(token, q, 0.0, parent)
    return tree


def with_replacement(q: Language, parents: list[int]) -> Propose:
    def propose(text: Text, rng: np.random.Generator) -> TokenTree:
        def draw(before: Text, siblings: list[int]) -> tuple[int, Distribution]:
            chances = distribution(q(before))
            return chances.sample(rng), chances

        return grown(parents, text, draw, drawn=True)

    return propose


def without_replacement(q: Language, parents: list[int]) -> Propose:
    def propose(text: Text, rng: np.random.Generator) -> TokenTree:
        def draw(before: Text, siblings: list[int]) -> tuple[int, Distribution]:
            left = q(before).copy()
            left[siblings] = 0
            # Where q has no other token: any q will do, as long as it is the one drawn from.
            left = left / left.sum() if left.sum() > 0 else np.full(len(left), 1 / len(left))
            return distribution(left).sample(rng), distribution(left)

        return grown(parents, text, draw, drawn=True)

    return propose


def chosen(seed: int, n_vocab: int, parents: list[int]) -> Propose:
    """Tokens that follow from the text, siblings that differ where there are tokens enough."""

    def propose(text: Text, rng: np.random.Generator) -> TokenTree:
        def draw(before: Text, siblings: list[int]) -> tuple[int, Distribution]:
            order = np.random.default_rng([seed, len(before), *before]).permutation(n_vocab)
            token = int(order[len(siblings) % n_vocab])
            return token, point_mass(token)

        return grown(parents, text, draw, drawn=False)

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
@pytest.mark.parametrize("draw", [with_replacement, without_replacement])
@pytest.mark.parametrize("case", list(cases(2)))
def test_drawn_siblings_leave_the_targets_distribution(
    case: str, draw: Callable[[Language, list[int]], Propose], shape: str
) -> None:
    p, q = cases(N_VOCAB)[case]
    drawn = simulate(p, draw(q, SHAPES[shape]), verify_siblings, seed=len(shape))
    assert p_value(p, N_VOCAB, drawn) > SURE


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", [verify_chosen, verify_siblings])
def test_chosen_trees_leave_the_targets_distribution(rule: TreeRule, shape: str) -> None:
    p = random_language(N_VOCAB, 21, zeros=0.2)
    drawn = simulate(p, chosen(3, N_VOCAB, SHAPES[shape]), rule, seed=len(shape))
    assert p_value(p, N_VOCAB, drawn) > SURE


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), n=st.integers(1, 6), kind=st.sampled_from("rwc"))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_random_trees_over_random_languages(seed: int, n: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    parents = random_parents(rng, n)
    p, q = random_language(N_VOCAB, seed, zeros=0.2), random_language(N_VOCAB, seed + 1, zeros=0.2)
    propose = {
        "r": with_replacement(q, parents),
        "w": without_replacement(q, parents),
        "c": chosen(seed, N_VOCAB, parents),
    }[kind]
    rule: TreeRule = verify_chosen if kind == "c" else verify_siblings
    assert p_value(p, N_VOCAB, simulate(p, propose, rule, seed)) > SURE / 10


def each_against_p(tree: TokenTree, p: list[Distribution], rng: np.random.Generator) -> Verdict:
    """A wrong rule: a sibling is tried against p, not against what the ones before it left."""
    assert tree.q is not None
    path: list[int] = []
    node = ROOT
    while True:
        here = p[node + 1]
        left = here
        for child in tree.children(node):
            token, q = tree.tokens[child], tree.q[child]
            if rng.random() * q.prob(token) < here.prob(token):
                path.append(child)
                break
            excess = left.excess(q)
            left = left.reweighted(excess) if excess.any() else left
        else:
            return Verdict(path, left.sample(rng))
        node = path[-1]


def forgets_what_was_taken(
    tree: TokenTree, p: list[Distribution], rng: np.random.Generator
) -> Verdict:
    """A wrong rule: takes siblings drawn without replacement as if each came from the first's q."""
    assert tree.q is not None
    q = list(tree.q)
    for node in range(len(tree)):
        q[node] = q[tree.children(tree.parents[node])[0]]
    return verify_siblings(TokenTree(tree.tokens, q, [], tree.parents), p, rng)


@pytest.mark.parametrize(
    ("rule", "draw"),
    [(each_against_p, with_replacement), (forgets_what_was_taken, without_replacement)],
)
def test_the_test_has_the_power_to_see_a_wrong_rule(
    rule: TreeRule, draw: Callable[[Language, list[int]], Propose]
) -> None:
    p: Language = lambda text: np.array([0.3, 0.3, 0.4])  # noqa: E731
    q: Language = lambda text: np.array([0.7, 0.2, 0.1])  # noqa: E731
    propose = draw(q, [ROOT, ROOT])
    assert p_value(p, N_VOCAB, simulate(p, propose, verify_siblings, 1)) > SURE
    assert p_value(p, N_VOCAB, simulate(p, propose, rule, 1)) < SURE


@given(seed=st.integers(0, 10_000), n=st.integers(0, 8))
@settings(deadline=None)
def test_greedy_descends_along_the_argmax(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    tree = TokenTree(rng.integers(0, 3, n).tolist(), parents=random_parents(rng, n))
    best = rng.integers(0, 3, n + 1).tolist()
    verdict = verify_greedy(tree, lambda row: best[row])
    p = [point_mass(token) for token in best]
    for other in (verify_chosen(tree, p, rng), verify_siblings(tree, p, rng)):
        assert (list(other.path), other.token) == (list(verdict.path), verdict.token)
    if n:
        tree.q = [point_mass(token) for token in tree.tokens]
        sampled = verify_siblings(tree, p, rng)
        assert (sampled.path, sampled.token) == (verdict.path, verdict.token)


def test_on_a_chain_siblings_are_the_token_rule() -> None:
    p, q = random_language(N_VOCAB, 1), random_language(N_VOCAB, 2)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        tree = with_replacement(q, [ROOT, 0, 1])((), rng)
        rows = [distribution(p(tuple(tree.tokens[:i]))) for i in range(4)]
        assert tree.q is not None
        one = verify_siblings(tree, rows, np.random.default_rng(seed))
        other = verify_tokens(tree.tokens, rows, tree.q, np.random.default_rng(seed))
        assert (list(one.path), one.token) == (list(other.path), other.token)


@pytest.mark.parametrize("draw", [with_replacement, without_replacement])
def test_more_siblings_are_accepted_more_often(
    draw: Callable[[Language, list[int]], Propose],
) -> None:
    p, q = random_language(4, 5), random_language(4, 6)
    rng = np.random.default_rng(0)
    rows = [distribution(p(()))] * 9

    def accepted(siblings: int) -> float:
        propose = draw(q, [ROOT] * siblings)
        return float(
            np.mean([verify_siblings(propose((), rng), rows, rng).accepted for _ in range(4000)])
        )

    one, two, three = (accepted(n) for n in (1, 2, 3))
    assert one == pytest.approx(np.minimum(p(()), q(())).sum(), abs=0.03)
    assert one < two < three
