"""The table of what the target said last after each token."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.draft.base import Scored
from spec_cpu.draft.lookup.recycled import KEPT, RecycledSource
from spec_cpu.llama.context import Rows
from spec_cpu.sampling.logits import NumpyRowOps

N_VOCAB = 40


def made(n_vocab: int = N_VOCAB) -> RecycledSource:
    source = RecycledSource(n_vocab, NumpyRowOps())
    source.begin([1])
    return source


def rows(seed: int, n: int, n_vocab: int = N_VOCAB) -> Rows:
    found: Rows = np.random.default_rng(seed).standard_normal((n, n_vocab)).astype(np.float32)
    return found


def commit(source: RecycledSource, fed: Sequence[int], seed: int, n_vocab: int = N_VOCAB) -> Rows:
    logits = rows(seed, len(fed), n_vocab)
    source.commit([7], Scored(fed, logits))
    return logits


@given(st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=9), st.integers(0, 99))
def test_it_says_what_the_target_held_for_likeliest(fed: list[int], seed: int) -> None:
    """After any token that was fed, accepted or not: by the last row that it had."""
    source = made()
    logits = commit(source, fed, seed)
    for token, row in dict(zip(fed, logits, strict=True)).items():
        follows = source.follows((3, token))
        likeliest = (-row).argsort()[:KEPT].tolist()
        assert [follow for follow, _ in follows] == likeliest[: len(follows)]
        sure = [chance for _, chance in follows]
        assert sure == sorted(sure, reverse=True)
        assert 0 < sum(sure) < 1


def test_nothing_is_known_at_first_and_after_it_was_told_to_forget() -> None:
    source = made()
    assert source.follows((3,)) == ()
    commit(source, [3, 7], 0)
    assert source.follows(()) == source.follows((7,)) != ()
    source.begin([1, 2])
    assert source.follows(()) == ()
    assert source.follows((3,)), "another text: the table stays"
    source.forget()
    assert source.follows((3,)) == ()


def test_a_tiny_vocabulary_has_fewer_tokens_to_keep() -> None:
    source = made(5)
    commit(source, [3], 0, 5)
    assert len(source.follows((3,))) == 5


def test_what_another_run_learnt_stands_in_until_this_one_knows_better() -> None:
    one, other = made(), made()
    commit(one, [3, 4], 0)
    commit(other, [4, 5], 1)
    mine = other.follows((4,))
    other.restore(one.state())
    assert other.follows((3,)) == one.follows((3,))
    assert other.follows((4,)) == mine
    commit(other, [3], 2)
    again = other.follows((3,))
    other.restore(one.state())
    assert other.follows((3,)) == again
    assert {*other.state()["after"].tolist()} == {3, 4, 5}
    other.restore({})
    assert other.follows((5,))


def test_rows_of_another_table_are_refused() -> None:
    state = made(5).state()
    with pytest.raises(ValueError, match="rows of 8"):
        made().restore(state)
    with pytest.raises(ValueError, match="no tokens"):
        made().restore({"after": np.zeros(1, np.int32)})


def test_it_takes_less_than_4_mb_for_49_thousand_tokens() -> None:
    assert len(pickle.dumps(made(49_152))) < 4e6
