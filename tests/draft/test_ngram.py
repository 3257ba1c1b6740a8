"""The n-gram drafter: what it finds, what it makes of it, and that it counts nothing twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.cycle.pinned import Pinned
from spec_cpu.draft.ngram import NgramDrafter
from spec_cpu.draft.suffix_index import LONGEST, ORDERS, SuffixIndex
from spec_cpu.draft.tree import TokenTree
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

GREEDY = Pipeline(SamplingParams(temperature=0))
RNG = np.random.default_rng(0)


def propose(drafter: NgramDrafter, k: int = 12) -> TokenTree:
    return drafter.propose([], k, GREEDY, RNG, Pinned(k))


def indexed(tokens: Sequence[int]) -> SuffixIndex:
    index = SuffixIndex()
    index.extend(tokens)
    return index


def searched(tokens: list[int]) -> list[tuple[int, int]]:
    """What `matches` should find, by looking everywhere: latest first."""
    last = len(tokens) - 1
    lengths: dict[int, int] = {}
    for end in range(last):
        n = 0
        while n <= min(end, LONGEST - 1) and tokens[end - n] == tokens[last - n] != -1:
            n += 1
        lengths[end] = n
    for order in reversed(ORDERS):
        found = [(end, n) for end, n in lengths.items() if n >= order]
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
    assert single.matches() == many.matches()
    assert [list(chain) for chain in single._before] == [list(chain) for chain in many._before]
    many.truncate(1500)
    many.extend(tokens[1500:])
    assert [list(chain) for chain in single._before] == [list(chain) for chain in many._before]
    assert [list(table) for table in single._latest] == [list(table) for table in many._latest]


def test_it_proposes_what_followed() -> None:
    drafter = NgramDrafter()
    drafter.begin([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4])
    tree = propose(drafter)
    assert tree.tokens[:5] == [5, 6, 7, 8, 9]
    assert tree.is_chain
    assert tree.q is None
    assert all(0 < chance < 1 for chance in tree.confidence)
    assert len(propose(drafter, 2)) == 2


def test_different_continuations_become_a_tree_with_the_commoner_first() -> None:
    drafter = NgramDrafter([[7, 8, 1, 0, 7, 8, 2, 0], [7, 8, 2, 0]])
    drafter.begin([5, 7, 8])
    tree = propose(drafter)
    assert tree.tokens[0] == 2
    assert [tree.tokens[child] for child in tree.children(-1)] == [2, 1]
    assert tree.confidence[0] == pytest.approx(2 * tree.confidence[tree.children(-1)[1]])
    reach = [np.prod([tree.confidence[i] for i in tree.path(node)]) for node in range(len(tree))]
    assert reach == sorted(reach, reverse=True), "best first"


def test_no_or_a_weak_match_proposes_nothing() -> None:
    drafter = NgramDrafter()
    for prompt in ([], [1], [1, 2, 3, 4], [1, 9, 9, 1]):
        drafter.begin(prompt)
        assert len(propose(drafter)) == 0
    drafter.begin([x for i in range(8) for x in (1, 2, 10 + i)] + [1, 2])
    assert len(propose(drafter)) == 0, "eight continuations, none of them likely"


def test_nothing_follows_an_end_and_no_match_crosses_a_break() -> None:
    drafter = NgramDrafter([[1, 2, 3, 4, 5]], ends={3})
    drafter.begin([1, 2])
    assert propose(drafter).tokens == [3]
    other = NgramDrafter([[1, 2]])
    other.begin([3, 4, 1, 2])
    assert len(propose(other)) == 0, "the reference ends there"


def test_it_counts_no_text_twice() -> None:
    """A session gives the whole of the history again with every turn."""
    drafter = NgramDrafter([[9, 9]])
    turn = [1, 2, 3, 4, 5, 6]
    for _ in range(5):
        drafter.begin(turn)
        assert len(drafter._index) == 3 + len(turn)
        assert len(propose(drafter)) == 0
    drafter.commit([7, 8])
    drafter.begin([*turn, 7, 1, 2])
    assert list(drafter._index.tokens) == [9, 9, -1, *turn, 7, 1, 2]
    assert propose(drafter).tokens[:3] == [3, 4, 5]


def test_it_learns_what_matches_are_worth() -> None:
    good, bad = NgramDrafter(), NgramDrafter()
    for drafter in (good, bad):
        drafter.begin([1, 2, 3, 4, 5] * 4)
    first = propose(good).confidence[0]
    fresh = iter(range(100, 1000))
    for i in range(40):
        propose(good)
        good.commit([1 + i % 5])
        propose(bad)
        bad.commit([next(fresh), 1, 2, 3, 4, 5, 1, 2, 3, 4, 5])
    assert propose(good).confidence[0] > first
    assert not len(propose(bad)) or propose(bad).confidence[0] < first


def test_a_large_reference_takes_little_memory() -> None:
    reference = (np.random.default_rng(0).zipf(1.3, 100_000) % 40_000).tolist()
    index = NgramDrafter([reference])._index
    held = [index.tokens, *index._before, *index._latest]
    assert sum(part.itemsize * len(part) for part in held) < 48 * len(index)


def test_a_proposal_costs_the_same_whatever_the_length_of_the_text() -> None:
    """Also where every run has occurred everywhere."""
    short, long = (NgramDrafter([[7] * n]) for n in (1_000, 100_000))
    for drafter in (short, long):
        drafter.begin([7] * 20)
    assert calls(lambda: propose(long)) <= calls(lambda: propose(short))
    assert calls(lambda: long.commit([7])) <= calls(lambda: short.commit([7]))


def calls(function: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C."""
    events: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: events.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(event.endswith("call") for event in events)
