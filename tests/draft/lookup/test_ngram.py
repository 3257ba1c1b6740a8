"""The n-gram drafter: what it finds, what it makes of it, and that it counts nothing twice."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.cycle.calibration import Calibration
from spec_cpu.cycle.growth import Growth
from spec_cpu.draft.base import Scored
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.draft.lookup.suffix_index import LONGEST, ORDERS, SuffixIndex
from spec_cpu.draft.tree import TokenTree

NOTHING: frozenset[int] = frozenset()


def propose(source: NgramSource, k: int = 12, ends: frozenset[int] = NOTHING) -> TokenTree:
    """The tree of `k` nodes that grows from what it says."""
    growth = Growth([source], Calibration(), k, 8, floor=0.1, ends=ends)
    growth.fill()
    return growth.tree(growth.best())


def committed(source: NgramSource, tokens: Sequence[int]) -> None:
    source.commit(tokens, Scored([], np.empty((0, 0), np.float32)))


def indexed(tokens: Sequence[int]) -> SuffixIndex:
    index = SuffixIndex()
    index.extend(tokens)
    return index


def everywhere(tokens: list[int]) -> list[tuple[int, int]]:
    """Every place but the last, and how much before it is like the end."""
    last = len(tokens) - 1
    lengths: list[tuple[int, int]] = []
    for end in range(last):
        n = 0
        while n <= min(end, LONGEST - 1) and tokens[end - n] == tokens[last - n] != -1:
            n += 1
        lengths.append((end, n))
    return lengths


def searched(tokens: list[int]) -> list[tuple[int, int]]:
    """What `matches` should find, by looking everywhere: latest first."""
    for order in reversed(ORDERS):
        found = [(end, n) for end, n in everywhere(tokens) if n >= order]
        if found:
            return found[::-1]
    return []


texts = st.lists(st.integers(0, 3), max_size=80)


@given(pieces=st.lists(st.tuples(texts, st.integers(0, 60)), max_size=6))
@settings(max_examples=150, deadline=None)
def test_matches_are_those_of_a_search(pieces: list[tuple[list[int], int]]) -> None:
    """Also where tokens are taken back, in one piece or by many, and after a break."""
    index, tokens = SuffixIndex(), []
    for piece, back in pieces:
        index.extend(piece)
        tokens += piece
        index.separate()
        tokens.append(-1)
        index.extend(piece[:20])
        tokens += piece[:20]
        index.truncate(max(0, len(tokens) - back))
        del tokens[max(0, len(tokens) - back) :]
        assert list(index.tokens) == tokens
        expected = searched(tokens)
        found = [(match.end, match.length) for match in index.matches()]
        # Runs with one hash share the places that are looked at: some may be missed.
        assert found == [one for one in expected if one in found]
        assert found[:1] == expected[:1]


def test_one_by_one_or_at_once_is_the_same() -> None:
    tokens = np.random.default_rng(1).integers(0, 30, 3000).tolist()
    single, many = SuffixIndex(), indexed(tokens)
    for token in tokens:
        single.extend([token])
    ends = [(), *(tuple(tokens[i : i + 8]) for i in range(0, 3000, 5))]
    expected = [single.matches(end) for end in ends]
    assert [many.matches(end) for end in ends] == expected
    many.truncate(1500)
    many.extend(tokens[1500:])
    assert [many.matches(end) for end in ends] == expected


def test_it_proposes_what_followed() -> None:
    drafter = NgramSource()
    drafter.begin([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4])
    tree = propose(drafter)
    assert tree.tokens[:5] == [5, 6, 7, 8, 9]
    assert tree.is_chain
    assert tree.q is None
    assert all(0 < chance < 1 for chance in tree.confidence)
    assert len(propose(drafter, 2)) == 2


def test_different_continuations_become_a_tree_with_the_commoner_first() -> None:
    drafter = NgramSource([[7, 8, 1, 0, 7, 8, 2, 0], [7, 8, 2, 0]])
    drafter.begin([5, 7, 8])
    tree = propose(drafter)
    assert tree.tokens[0] == 2
    assert [tree.tokens[child] for child in tree.children(-1)] == [2, 1]
    assert tree.confidence[0] == pytest.approx(2 * tree.confidence[tree.children(-1)[1]])
    reach = [np.prod([tree.confidence[i] for i in tree.path(node)]) for node in range(len(tree))]
    assert reach == sorted(reach, reverse=True), "best first"


def test_no_or_a_weak_match_proposes_nothing() -> None:
    drafter = NgramSource()
    for prompt in ([], [1], [1, 2, 3, 4], [1, 9, 9, 1]):
        drafter.begin(prompt)
        assert len(propose(drafter)) == 0
    drafter.begin([x for i in range(8) for x in (1, 2, 10 + i)] + [1, 2])
    assert len(propose(drafter)) == 0, "eight continuations, none of them likely"


def test_nothing_follows_an_end_and_no_match_crosses_a_break() -> None:
    drafter = NgramSource([[1, 2, 3, 4, 5]])
    drafter.begin([1, 2])
    assert propose(drafter, ends=frozenset({3})).tokens == [3]
    other = NgramSource([[1, 2]])
    other.begin([3, 4, 1, 2])
    assert len(propose(other)) == 0, "the reference ends there"


def test_it_counts_no_text_twice() -> None:
    """A session gives the whole of the history again with every turn."""
    drafter = NgramSource([[9, 9]])
    turn = [1, 2, 3, 4, 5, 6]
    for _ in range(5):
        drafter.begin(turn)
        assert len(propose(drafter)) == 0
    committed(drafter, [7, 8])
    drafter.begin([*turn, 7, 1, 2])
    assert propose(drafter).tokens[:3] == [3, 4, 5]


@given(texts, texts)
@settings(max_examples=150, deadline=None)
def test_a_path_is_looked_up_as_the_end_of_a_text(text: list[int], path: list[int]) -> None:
    """What follows a node that no occurrence led to is what would follow the text with it."""
    longer = [*text, *path]
    found = [(match.end, match.length) for match in indexed(text).matches(tuple(path))]
    assert all(end < len(text) for end, _ in found), "the path itself is no text"
    assert {*found} <= {*everywhere(longer)}
    orders = [order for order in ORDERS if any(n >= order for _, n in found)]
    best = max((n for end, n in everywhere(longer) if end < len(text)), default=0)
    assert orders == [order for order in ORDERS if order <= best], "the longest run that there is"


def test_a_large_reference_takes_little_memory() -> None:
    reference = (np.random.default_rng(0).zipf(1.3, 100_000) % 40_000).tolist()
    assert len(pickle.dumps(indexed(reference))) < 48 * len(reference)


def test_a_proposal_costs_the_same_whatever_the_length_of_the_text() -> None:
    """Also where every run has occurred everywhere."""
    short, long = (NgramSource([[7] * n]) for n in (1_000, 100_000))
    for drafter in (short, long):
        drafter.begin([7] * 20)
    assert calls(lambda: propose(long)) <= 1.05 * calls(lambda: propose(short))
    assert calls(lambda: committed(long, [7])) <= 1.05 * calls(lambda: committed(short, [7]))


def calls(function: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C."""
    events: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: events.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(event.endswith("call") for event in events)


def test_what_is_forgotten_decides_nothing() -> None:
    learnt, new = NgramSource([[1, 2, 3, 4, 9]], kept=100), NgramSource([[1, 2, 3, 4, 9]])
    learnt.begin([*range(20, 50), 1, 2, 3, 4, 5, 1, 2, 3, 4, 5])
    learnt.forget()
    for source in (learnt, new):
        source.begin([*range(20, 40), 1, 2, 3, 4])
    assert propose(learnt).tokens == propose(new).tokens == [9]
    assert propose(learnt).confidence == propose(new).confidence
