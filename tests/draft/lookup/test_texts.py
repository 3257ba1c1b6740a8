"""The texts that drafts are looked up in: what is kept of them, how much, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spec_cpu.draft.lookup.suffix_index import BREAK, LONGEST
from spec_cpu.draft.lookup.texts import WINDOW, Texts, newest

MANY = 10_000

repetitive = st.lists(st.integers(BREAK, 2), max_size=150)


def row(tokens: Sequence[int]) -> NDArray[np.int32]:
    return np.array(tokens, np.int32)


def runs(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """All runs of `WINDOW` tokens within a text, in order."""
    found = [tuple(tokens[i : i + WINDOW]) for i in range(len(tokens) - WINDOW + 1)]
    return [run for run in found if BREAK not in run]


def fresh(n: int, start: int) -> list[int]:
    """A text that no other has a token of."""
    return list(range(start, start + n))


def test_a_text_that_is_given_again_with_every_turn_is_there_once() -> None:
    texts, turn = Texts([[9, 9]]), [1, 2, 3, 4, 5, 6]
    for _ in range(5):
        texts.begin(turn)
        assert list(texts.index.tokens) == [9, 9, BREAK, *turn]
    texts.index.extend([7, 8])
    texts.begin([*turn, 7, 1, 2])
    assert list(texts.index.tokens) == [9, 9, BREAK, *turn, 7, 1, 2]


@given(repetitive, st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=4))
def test_what_can_be_matched_is_kept_and_nothing_else(
    tokens: list[int], copies: list[tuple[int, int]]
) -> None:
    for start, end in copies:
        tokens = [*tokens, BREAK, *tokens[start:end]]
    kept = newest(row(tokens), MANY).tolist()
    assert set(runs(kept)) == set(runs(tokens))
    assert len(kept) <= len(tokens) + 1
    assert not kept or kept[-1] == BREAK
    assert newest(row(kept), MANY).tolist() == kept


@given(repetitive, st.integers(0, 100))
def test_the_oldest_go_first(tokens: list[int], most: int) -> None:
    kept = newest(row(tokens), most).tolist()
    assert len(kept) <= most
    assert newest(row(kept), most).tolist() == kept
    everything = newest(row(tokens), MANY).tolist()
    assert everything[len(everything) - len(kept) :] == kept
    if len(everything) <= most:
        assert kept == everything


def test_what_comes_again_is_kept_as_the_newer_one() -> None:
    old, other = fresh(40, 0), fresh(40, 100)
    kept = newest(row([*old, BREAK, *other, BREAK, *old]), MANY).tolist()
    assert kept == [*other, BREAK, *old, BREAK]
    assert newest(row([*old, BREAK, *other, BREAK, *old]), 50).tolist()[-41:] == [*old, BREAK]


def test_another_text_takes_the_place_of_the_present_one_which_stays() -> None:
    texts = Texts(kept=MANY)
    first, second = fresh(30, 0), fresh(30, 100)
    texts.begin(first)
    texts.begin(second)
    assert texts.state()["tokens"].tolist() == [*first, BREAK, *second, BREAK]
    forgetful = Texts()
    forgetful.begin(first)
    forgetful.begin(second)
    assert list(forgetful.index.tokens) == second


def test_what_is_forgotten_is_not_found_and_kept_all_the_same() -> None:
    texts = Texts([fresh(20, 900)], kept=100)
    before = newest(row(fresh(30, 800)), 100)
    texts.restore({"tokens": before})
    said = [fresh(30, 100 * n) for n in range(6)]
    for text in said:
        texts.begin(text)
        texts.forget()
        assert list(texts.index.tokens) == [*fresh(20, 900), BREAK]
    texts.begin(said[1])
    last = [*said[4], BREAK, *said[5], BREAK, *said[1], BREAK]
    assert texts.state()["tokens"].tolist()[-len(last) :] == last
    assert len(texts.state()["tokens"]) <= 100
    texts.restore({"tokens": before})
    assert list(texts.index.tokens)[21:52] == before.tolist()


def test_a_text_that_goes_on_is_there_once() -> None:
    """A session gives the whole of the history again with every turn."""
    texts = Texts([[7, 7]], kept=MANY)
    text: list[int] = []
    for turn in range(20):
        text += fresh(30, 30 * turn)
        texts.begin(text)
        texts.index.extend([5, 5])  # what an answer ends with and the next prompt lacks
    assert list(texts.index.tokens) == [7, 7, BREAK, *text, 5, 5]
    texts.begin([*text[:300], *fresh(30, 5000)])
    assert texts.state()["tokens"].tolist() == [
        *text[300 - LONGEST :],
        *[5, 5, BREAK],
        *text[:300],
        *fresh(30, 5000),
        BREAK,
    ]


@given(st.lists(st.integers(0, 4), max_size=12))
def test_no_more_is_kept_than_was_said_to_be(order: list[int]) -> None:
    texts = Texts(kept=100)
    texts.restore({"tokens": newest(row(fresh(200, 5000)), 100)})
    for n in order:
        texts.begin(fresh(40, 100 * n))
        assert len(texts.index) <= 100 + 1 + 2 * 100 + 41 + 40
    kept = texts.state()["tokens"].tolist()
    assert len(kept) <= 100
    assert not order or kept[-41:-1] == fresh(40, 100 * order[-1])


@given(repetitive, repetitive, repetitive)
def test_what_is_restored_stands_before_the_texts_of_this_run(
    before: list[int], first: list[int], present: list[int]
) -> None:
    early, late = Texts([[9]], kept=MANY), Texts([[9]], kept=MANY)
    state = {"tokens": newest(row(before), MANY)}
    early.restore(state)
    for texts in (early, late):
        texts.begin([8, *first])
        texts.begin([7, *present])
    late.restore({"tokens": newest(row(fresh(40, 20)), MANY)})
    late.restore(state)
    assert list(early.index.tokens) == list(late.index.tokens)
    assert early.index.matches() == late.index.matches()
    for texts in (early, late):
        texts.begin([7, *present, 3, 3])
    assert early.index.matches() == late.index.matches()
    late.restore({})
    assert set(runs(late.state()["tokens"].tolist())) <= {
        *runs([8, *first]),
        *runs([7, *present, 3, 3]),
    }


@given(repetitive)
def test_a_state_is_restored_as_it_was(tokens: list[int]) -> None:
    one = Texts(kept=MANY)
    one.begin(tokens)
    state = one.state()
    other = Texts(kept=MANY)
    other.restore(state)
    assert np.array_equal(other.state()["tokens"], state["tokens"])
