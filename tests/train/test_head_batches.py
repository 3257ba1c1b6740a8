"""From shards to batches: which row is about which token, and which tokens a head has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spec_cpu.errors import UsageError
from spec_cpu.train.batches import Vocabulary, batch_of
from spec_cpu.train.script import ASSISTANT, GIVEN, USER
from spec_cpu.train.shards import Manifest, Shard, ShardStore

SEQUENCES, LENGTH, TOP, WIDTH, N_VOCAB = 4, 10, 3, 5, 20


def shard(roles: list[int]) -> Shard:
    rng = np.random.default_rng(0)
    top = np.stack([rng.permutation(N_VOCAB)[:TOP] for _ in range(SEQUENCES * LENGTH)])
    chances = np.sort(rng.dirichlet(np.ones(TOP), (SEQUENCES, LENGTH)))[..., ::-1]
    return Shard(
        tokens=rng.integers(0, N_VOCAB, (SEQUENCES, LENGTH)).astype(np.int32),
        features=rng.standard_normal((SEQUENCES, LENGTH, WIDTH)).astype(np.float16),
        top_tokens=top.reshape(SEQUENCES, LENGTH, TOP).astype(np.int32),
        top_logprobs=np.log(chances).astype(np.float16),
        roles=np.tile(np.array(roles, np.uint8), (SEQUENCES, 1)),
    )


def test_row_i_foretells_what_follows_token_i_plus_1() -> None:
    data = shard([GIVEN] * LENGTH)
    tokens = np.array([2, 3, 5, 7, 11, 13, 17, 19], np.int32)
    vocabulary = Vocabulary.of(tokens, N_VOCAB, 1.0)
    chosen = np.array([2, 1])
    batch = batch_of(data, vocabulary, chosen)
    for b, seq in enumerate(chosen):
        for i in range(LENGTH - 1):
            np.testing.assert_array_equal(batch.features[b, i], data.features[seq, i])
            np.testing.assert_array_equal(batch.next_features[b, i], data.features[seq, i + 1])
            assert batch.next_tokens[b, i] == data.tokens[seq, i + 1]
            for k in range(TOP):
                token = data.top_tokens[seq, i + 1, k]
                output = int(batch.ids[b, i, k])
                chance = float(batch.chances[b, i, k])
                if token in tokens:
                    assert tokens[output] == token
                    assert chance == pytest.approx(
                        np.exp(float(data.top_logprobs[seq, i + 1, k])), rel=1e-3
                    )
                else:
                    assert (output, chance) == (-1, 0.0)
    assert batch.greedy.tolist() == [True, False]


def test_a_row_counts_for_the_answer_that_it_foretells() -> None:
    roles = [GIVEN, USER, USER, GIVEN, GIVEN, ASSISTANT, ASSISTANT, GIVEN, USER, GIVEN]
    vocabulary = Vocabulary.of(np.arange(N_VOCAB, dtype=np.int32), N_VOCAB, 1.0)
    weights = batch_of(shard(roles), vocabulary, np.array([0])).weights[0].numpy()
    # Row i has token i + 1; the token that it foretells, i + 2, has the say, too.
    expected = [USER, USER, GIVEN, ASSISTANT, ASSISTANT, ASSISTANT, USER, USER, GIVEN]
    value = {GIVEN: 0.0, USER: 0.3, ASSISTANT: 1.0}
    np.testing.assert_allclose(weights, [value[role] for role in expected])


def store(folder: Path, roles: list[int]) -> ShardStore:
    made = ShardStore(folder)
    made.begin(Manifest("t", "0", WIDTH, SEQUENCES, LENGTH, TOP, 0))
    made.write(0, shard(roles))
    return made


def test_the_vocabulary_is_what_answers_most_likely_are_made_of(tmp_path: Path) -> None:
    data = store(tmp_path, [ASSISTANT] * 5 + [USER] * 5)
    mass = np.zeros(N_VOCAB)
    read = data.read(0)
    np.add.at(mass, read.top_tokens[:, :5], np.exp(read.top_logprobs[:, :5].astype(float)))
    vocabulary = Vocabulary.most_likely(data, N_VOCAB, 6)
    assert vocabulary.tokens.tolist() == sorted(np.argsort(-mass)[:6].tolist())
    assert vocabulary.coverage == pytest.approx(np.sort(mass)[-6:].sum() / mass.sum())
    assert vocabulary.ids[vocabulary.tokens].tolist() == list(range(6))
    assert (vocabulary.ids >= 0).sum() == 6


def test_a_vocabulary_is_no_larger_than_the_targets(tmp_path: Path) -> None:
    data = store(tmp_path, [ASSISTANT] * LENGTH)
    vocabulary = Vocabulary.most_likely(data, N_VOCAB, 1000)
    assert vocabulary.tokens.tolist() == list(range(N_VOCAB))
    assert vocabulary.coverage == pytest.approx(1.0)


def test_data_without_answers_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no answers to learn from"):
        Vocabulary.most_likely(store(tmp_path, [USER] * LENGTH), N_VOCAB, 6)
