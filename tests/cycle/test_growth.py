"""The laws of growing one tree, from sources that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import GREEDY, proposed
from trees import leaves

from spec_cpu.cycle.calibration import Calibration, Open
from spec_cpu.cycle.drafting import Drafting, Proposal
from spec_cpu.cycle.growth import Growth
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.draft.base import WIDTH, Follows, Path
from spec_cpu.draft.tree import ROOT, TokenTree

END = 2
MANY = 10_000
NOTHING: frozenset[int] = frozenset()


class Made:
    """After any path a distribution of its own over `breadth` tokens."""

    model = sequence = window = None
    by_features = False

    def __init__(self, seed: int, breadth: int = 3, flat: float = 1.0, name: str = "made") -> None:
        self.name = name
        self._seed = seed
        self._breadth = breadth
        self._flat = flat

    def says(self, path: Path) -> Follows:
        rng = np.random.default_rng([self._seed, *path])
        p = rng.dirichlet([self._flat] * (self._breadth + 1))[: self._breadth]
        return [(int(i), float(p[i])) for i in (-p).argsort()]


class Looked(Made):
    def follows(self, path: Path) -> Follows:
        return self.says(path)


class Passed(Made):
    """Keeps what it is asked."""

    shape, layers, ids = "tree", 1, None

    def __init__(self, seed: int, breadth: int = 3, flat: float = 1.0, paths: int = MANY) -> None:
        super().__init__(seed, breadth, flat, "passed")
        self.paths = paths
        self.passes: list[list[Path]] = []

    def able(self, _reader: object, nodes: int) -> int:
        self.room = nodes
        return nodes

    def expand(self, paths: Sequence[Path], _reader: object) -> list[Follows]:
        self.passes.append([*paths])
        return [self.says(path) for path in paths]


class Halting(Pinned):
    """Says yes so many times, to so many nodes."""

    def __init__(self, k: int, passes: int, width: int) -> None:
        super().__init__(k)
        self.left, self.width = passes, width

    def worth_pass(self, chances: Sequence[float], layer: Sequence[Open], layers: int) -> int:
        assert list(chances) == sorted(chances, reverse=True)
        gains = [reach * (1 - known) for reach, known in layer]
        assert gains == sorted(gains, reverse=True)
        self.left -= 1
        return min(self.width, len(layer)) if self.left >= 0 else 0


def grown(
    sources: Sequence[Made], policy: Pinned, *, ends: frozenset[int] = NOTHING, paths: int = MANY
) -> Proposal:
    drafting = Drafting(sources, policy, ends=ends)  # type: ignore[arg-type]
    return proposed(drafting, [1], MANY, paths, GREEDY, np.random.default_rng(0))


def reach(tree: TokenTree) -> list[float]:
    chances: list[float] = []
    for parent, confidence in zip(tree.parents, tree.confidence, strict=True):
        chances.append(confidence * (1.0 if parent == ROOT else chances[parent]))
    return chances


def texts(tree: TokenTree) -> set[Path]:
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


seeds = st.integers(0, 10**6)


@given(seeds, st.integers(1, 12), st.sampled_from([Looked, Passed]))
@settings(deadline=None, max_examples=60)
def test_it_is_the_best_subtree_of_k_nodes(seed: int, k: int, kind: type[Made]) -> None:
    """By an exhaustive look at all texts of up to 4 tokens, none of which can be forgotten."""
    made = Made(seed, breadth=3, flat=0.5)
    every: dict[Path, float] = {}
    for depth in range(1, 5):
        for text in product(range(3), repeat=depth):
            before = every.get(text[:-1], 1.0 if depth == 1 else 0.0)
            every[text] = before * dict(made.says(text[:-1]))[text[-1]]
    best = sorted(every, key=lambda text: -every[text])[:k]
    if max(map(len, best)) == 4:  # deeper ones might be better
        return
    tree = grown([kind(seed, 3, 0.5)], Pinned(k)).tree
    assert texts(tree) == set(best)
    assert sum(reach(tree)) == pytest.approx(sum(every[text] for text in best))


@given(seeds, st.integers(0, 20), st.integers(1, 6), st.integers(0, 9), st.integers(1, 9))
@settings(deadline=None, max_examples=100)
def test_a_tree_is_in_order_and_never_too_large(
    seed: int, k: int, paths: int, passes: int, width: int
) -> None:
    looked, passed = Looked(seed, breadth=4), Passed(seed + 1, breadth=5, paths=paths)
    sources = [looked, passed] if seed % 2 else [passed]
    proposal = grown(sources, Halting(k, passes, width), ends=frozenset({END}), paths=paths)
    tree = proposal.tree
    assert len(tree) <= k
    assert len(proposal.names) == len(tree)
    assert leaves(tree) <= paths
    chances = reach(tree)
    assert chances == sorted(chances, reverse=True), "best first"
    assert len(texts(tree)) == len(tree), "siblings differ"
    assert all(END not in path[:-1] for path in texts(tree)), "nothing follows an end"
    fed = [path for layer in passed.passes for path in layer]
    assert len(passed.passes) <= passes
    assert len(fed) == len(set(fed)) <= passed.room + 1 if fed else True
    assert passed.passes[:1] in ([], [[()]]), "the text itself comes first, alone"
    assert all(len(layer) <= min(WIDTH, width) for layer in passed.passes)
    known: set[Path] = set()
    for layer in passed.passes:
        assert all(not path or path[:-1] in known for path in layer), "after their parents"
        assert all(END not in path for path in layer)
        known |= {*layer}
    branches = {path for path in fed if not any(p[:-1] == path for p in fed if p)}
    assert len(branches) <= paths


@given(seeds, st.integers(1, 10))
@settings(deadline=None, max_examples=50)
def test_it_is_expected_to_bring_what_the_best_chain_does_or_more(seed: int, k: int) -> None:
    made = Made(seed, breadth=4)
    path: Path = ()
    chance, expected = 1.0, 0.0
    for _ in range(k):
        token, confidence = made.says(path)[0]
        path = (*path, token)
        chance *= confidence
        expected += chance
    tree = grown([Passed(seed, 4)], Pinned(k)).tree
    assert sum(reach(tree)) >= expected - 1e-12


@given(seeds, st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_on_a_single_path_it_is_the_greedy_chain(seed: int, k: int) -> None:
    passed = Passed(seed, 4, paths=1)
    tree = grown([passed], Pinned(k), paths=1).tree
    assert tree.is_chain
    assert len(tree) == k


def test_nothing_is_drafted_where_the_policy_says_so() -> None:
    for k, passes in ((0, 9), (5, 0)):
        passed = Passed(0)
        assert not grown([passed], Halting(k, passes, 1)).tree.tokens
        assert not passed.passes


def test_a_sure_draft_ends_with_k_nodes() -> None:
    """Chances tie: a parent still comes before its child, and it comes to an end."""

    class Sure(Passed):
        def says(self, path: Path) -> Follows:
            return [(7, 1.0)]

    tree = grown([Sure(0)], Pinned(9)).tree
    assert tree.tokens == [7] * 9
    assert tree.is_chain


@given(seeds, st.integers(1, 12))
@settings(deadline=None, max_examples=50)
def test_sources_that_agree_have_one_node(seed: int, k: int) -> None:
    """It is no less likely for that, and nothing is less likely than what follows it."""
    one, other = Looked(seed, name="one"), Looked(seed + 1, name="other")
    both = grown([one, other], Pinned(k))
    assert len(texts(both.tree)) == len(both.tree)
    for alone in (one, other):
        names = [names for names in both.names if alone.name in names]
        assert all(len(set(each)) == len(each) for each in names)
    follows: dict[int, float] = {}
    for parent, chance in zip(both.tree.parents, both.tree.confidence, strict=True):
        follows[parent] = follows.get(parent, 0.0) + chance
    assert all(total <= 1.0 + 1e-9 for total in follows.values()), "one of them at most is right"


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_what_a_pass_finds_changes_what_was_there(seed: int) -> None:
    """A node that a source says is likelier than was thought takes what follows it along."""
    looked, passed = Looked(seed, breadth=2), Passed(seed + 1, breadth=2)
    proposal = grown([looked, passed], Pinned(12))
    growth, tree = proposal.growth, proposal.tree
    assert growth is not None
    chances = reach(tree)
    grew = {growth.path(node): chance for node, chance in enumerate(growth.chances)}
    for node in range(len(tree)):
        path = tuple(tree.tokens[i] for i in tree.path(node))
        assert grew[path] == pytest.approx(chances[node])


def test_the_record_hears_of_what_was_not_scored_as_far_as_the_text_goes() -> None:
    class Kept(Calibration):
        def learn(self, said: Sequence[tuple[str, float]], accepted: bool) -> None:
            heard.append(accepted)

    class Chain(Looked):
        def says(self, path: Path) -> Follows:
            return [(len(path), 0.9), (9, 0.05)]

    for tokens, fates in (
        ([0, 1, 2], [True, False] * 3),
        ([0, 9], [True, False, False, True]),
        ([5], [False, False]),
    ):
        heard: list[bool] = []
        growth = Growth([Chain(0)], Kept(), 6, MANY, floor=0.3, ends=NOTHING)
        growth.fill()
        growth.learn(tokens)
        assert heard == fates


@given(seeds, st.lists(st.integers(0, 3), max_size=6), st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_the_best_nodes_do_not_depend_on_when_they_are_asked_for(
    seed: int, order: list[int], most: int
) -> None:
    says = Made(seed)
    asked, unasked = (
        Growth([], Calibration(), most, MANY, floor=0.01, ends=NOTHING) for _ in range(2)
    )
    parents = [ROOT]
    for chosen in order:
        parent = parents[chosen % len(parents)]
        for growth in (asked, unasked):
            growth.add(parent, [("made", says.says(growth.path(parent)))])
        parents = [ROOT, *asked.best()]
    assert asked.best() == unasked.best()


@given(seeds, st.integers(1, 12), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_no_pass_is_made_for_what_cannot_become_part_of_it(seed: int, k: int, paths: int) -> None:
    """A pass beyond the root's is for nodes that others of the tree follow, or may have followed:
    never for the least likely one of a tree that is full."""
    source = Passed(seed, paths=paths)
    tree = grown([source], Pinned(k), paths=paths).tree
    if paths == 1:
        assert len(source.passes) <= k
    assert len(source.passes) <= 1 or len(tree) > 1


@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_pass_that_tells_all_is_made_once(k: int) -> None:
    source = Told(0)
    proposal = grown([source], Pinned(k))
    assert source.passes == [[()]]
    assert proposal.names == [["told"]] * k


class Told(Made):
    """After one pass it knows what may follow any path of up to 3 tokens."""

    shape, layers, paths = "tree", 4, 1

    def __init__(self, seed: int) -> None:
        super().__init__(seed, name="told")
        self.passes: list[list[Path]] = []

    def able(self, _reader: object, nodes: int) -> int:
        return nodes

    def expand(self, paths: Sequence[Path], _reader: object) -> list[Follows]:
        self.passes.append([*paths])
        return [self.follows(path) for path in paths]

    def follows(self, path: Path) -> Follows:
        return self.says(path) if self.passes and len(path) < self.layers else ()
