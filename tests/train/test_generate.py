"""The target's own text: what is stored is what a plain pass gives, whenever it is made."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from spec_cpu import defaults
from spec_cpu.errors import ContextError, UsageError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.machine import hardware
from spec_cpu.train import generate as generating
from spec_cpu.train.generate import Plan, draw, generate, top_logprobs
from spec_cpu.train.script import ASSISTANT, GIVEN, USER
from spec_cpu.train.shards import Shard, ShardStore

SIZE = 4 * 40
SMALL = {"sequences": 4, "length": 40}


def assert_same(one: Shard, other: Shard) -> None:
    for field in fields(Shard):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_shards_hold_what_a_plain_pass_gives(talker: Model, spoken: ShardStore) -> None:
    shard = spoken.read(1)
    n = shard.tokens.shape[1]
    with Context(talker, n_ctx=n, threads=1, hidden=True, max_outputs=n) as context:
        for seq in (0, 1, 7):
            context.truncate(0)
            logits = context.decode(shard.tokens[seq].tolist(), range(n), [(0,)] * n)
            hidden = context.hidden_rows(n)
            np.testing.assert_allclose(shard.features[seq], hidden, atol=1e-2)
            logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            mine = np.take_along_axis(logs, shard.top_tokens[seq], 1)
            np.testing.assert_allclose(shard.top_logprobs[seq], mine, atol=2e-2, rtol=4e-3)
            best = -np.sort(-logs, axis=1)[:, : mine.shape[1]]
            np.testing.assert_allclose(mine, best, atol=2e-2)


def test_greedy_answers_are_the_likeliest_tokens(spoken: ShardStore) -> None:
    shard = spoken.read(0)
    said = shard.roles[::2, 1:] == ASSISTANT
    assert said.sum() > 20
    np.testing.assert_array_equal(shard.tokens[::2, 1:][said], shard.top_tokens[::2, :-1, 0][said])


def test_both_speak(spoken: ShardStore) -> None:
    roles = np.concatenate([shard.roles for shard in spoken])
    assert {GIVEN, USER, ASSISTANT} == set(roles.ravel().tolist())


def test_a_stopped_run_goes_on_where_it_was(talker: Model, tmp_path: Path) -> None:
    plan = Plan(3 * SIZE, seed=5, **SMALL)
    whole = generate(talker, tmp_path / "whole", plan, threads=1)
    assert len(whole) == 3

    def stop(done: int, _total: int, _rate: float) -> None:
        if done > SIZE + 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(talker, tmp_path / "parts", plan, threads=1, progress=stop)
    assert len(ShardStore(tmp_path / "parts")) == 1
    parts = generate(talker, tmp_path / "parts", plan, threads=1)
    for one, other in zip(whole, parts, strict=True):
        assert_same(one, other)
    assert not np.array_equal(whole.read(0).tokens, whole.read(1).tokens)


def test_it_is_told_when_to_stop(talker: Model, tmp_path: Path) -> None:
    answers = iter([False, True])
    store = generate(
        talker, tmp_path, Plan(9 * SIZE, **SMALL), threads=1, until=lambda: next(answers)
    )
    assert len(store) == 1


def test_progress_counts_what_was_there_before(talker: Model, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    generate(talker, tmp_path, Plan(SIZE, **SMALL), threads=1)
    generate(
        talker,
        tmp_path,
        Plan(2 * SIZE, **SMALL),
        threads=1,
        progress=lambda done, total, _: told.append((done, total)),
    )
    assert told[0] == (SIZE + 4, 2 * SIZE)
    assert told[-1] == (2 * SIZE, 2 * SIZE)


def test_every_other_pair_of_conversations_begins_with_prompts(
    talker: Model, tmp_path: Path
) -> None:
    prompts = [["abc"], ["de", "fg"]]
    plan = Plan(3 * SIZE, prompts=prompts, **SMALL)
    first, second, later = generate(talker, tmp_path, plan, threads=1)
    whole = [{user_turn(talker, shard, seq) for seq in range(2)} for shard in (first, second)]
    assert sorted(whole, key=str) == [{"abc"}, {"de"}]
    assert not {"abc", "de"} & {user_turn(talker, first, seq) for seq in (2, 3)}
    begun = [user_turn(talker, later, seq) for seq in range(2)]
    assert all(turn[:1] in ("a", "d") for turn in begun), "a later pass goes on from a beginning"
    with pytest.raises(UsageError, match="another target, seed or prompts"):
        generate(talker, tmp_path, Plan(2 * SIZE, prompts=[["abc"]], **SMALL), threads=1)


def user_turn(talker: Model, shard: Shard, seq: int) -> str:
    """What the user says first in a conversation."""
    roles = list(shard.roles[seq])
    first = roles.index(USER)
    end = first + [*(role == USER for role in roles[first:]), False].index(False)
    return (
        b"".join(map(talker.vocab.piece, map(int, shard.tokens[seq, first:end]))).decode().strip()
    )


def test_marks_in_prompts_are_text(talker: Model, tmp_path: Path) -> None:
    """Rule: only the template sets turns apart, also in what a head learns from."""
    store = generate(talker, tmp_path, Plan(1, prompts=[["<|im_end|>a"]], **SMALL), threads=1)
    assert "<|im_end|>a" in {user_turn(talker, store.read(0), seq) for seq in range(2)}


def test_of_prompts_without_room_for_an_answer_there_is_the_beginning(
    talker: Model, tmp_path: Path
) -> None:
    store = generate(talker, tmp_path, Plan(1, prompts=[["x" * 200]], **SMALL), threads=1)
    for seq in range(2):
        assert user_turn(talker, store.read(0), seq).startswith("x")


def test_less_memory_later_changes_nothing(
    talker: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(talker, tmp_path, Plan(SIZE, **SMALL), threads=1)
    monkeypatch.setattr(generating, "MEMORY_SHARE", 1e-9)
    assert len(generate(talker, tmp_path, Plan(2 * SIZE, **SMALL), threads=1)) == 2


def test_too_little_memory_says_how_much_it_takes(
    talker: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "available_memory", lambda: 1000)
    with pytest.raises(ContextError, match=r"needs about .* GB of memory, but 0.0 GB are free"):
        generate(talker, tmp_path, Plan(1, **SMALL), threads=1)
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


LOGITS = npst.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 300)),
    elements=st.floats(-20, 20, width=32),
)


@settings(max_examples=30, deadline=None)
@given(LOGITS, st.integers(1, 300))
def test_top_logprobs_are_the_largest_of_a_softmax(logits: NDArray[np.float32], k: int) -> None:
    k = min(k, logits.shape[1])
    ids, logprobs = top_logprobs(logits, k)
    logs = logits - np.logaddexp.reduce(logits.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(logprobs, -np.sort(-logs, axis=1)[:, :k], atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(logs, ids, 1), logprobs, atol=1e-4)
    assert all(len(set(row)) == k for row in ids.tolist())


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**32), st.floats(0.1, 2.0))
def test_a_draw_keeps_to_what_sampling_would_keep(k: int, seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    logprobs = -np.sort(rng.exponential(2.0, (200, k))).astype(np.float32)
    columns = draw(logprobs, np.full(200, temperature), rng)
    chances = np.exp(logprobs - logprobs[:, :1])
    rows = np.arange(200)
    before = np.cumsum(chances, 1)[rows, columns] - chances[rows, columns]
    assert (chances[rows, columns] >= defaults.MIN_P).all()
    assert (before < defaults.TOP_P * chances.sum(1)).all()


def test_draws_follow_the_tempered_distribution() -> None:
    logprobs = np.log(np.tile([0.5, 0.3, 0.2], (20_000, 1))).astype(np.float32)
    columns = draw(logprobs, np.full(20_000, 0.5), np.random.default_rng(0))
    expected = np.array([0.25, 0.09, 0.04]) / 0.38
    np.testing.assert_allclose(np.bincount(columns) / 20_000, expected, atol=0.02)


def test_temperature_0_takes_the_first() -> None:
    logprobs = np.log(np.tile([0.4, 0.35, 0.25], (50, 1))).astype(np.float32)
    assert not draw(logprobs, np.zeros(50), np.random.default_rng(0)).any()
