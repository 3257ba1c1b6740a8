"""From shards to what a head is trained on: a reduced vocabulary, scales, batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spec_cpu.errors import UsageError
from spec_cpu.train.script import ASSISTANT, USER
from spec_cpu.train.shards import Shard, ShardStore

_USER_WEIGHT = 0.3  # the user's turns resemble answers a little


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens that a head can propose.

    Attributes:
        tokens: (V',) int32, rising: output id to the target's id.
        ids: (n_vocab,) int64: the other way round; -1 for the rest.
        coverage: the share of the target's answers that it has.
    """

    tokens: NDArray[np.int32]
    ids: NDArray[np.int64]
    coverage: float

    @classmethod
    def most_likely(cls, store: ShardStore, n_vocab: int, size: int) -> Vocabulary:
        """The `size` tokens that the target's answers most likely consist of."""
        store.manifest()  # raises an error if there is nothing
        mass = np.zeros(n_vocab)
        for shard in store:
            said = shard.roles == ASSISTANT
            tokens, chances = shard.top_tokens[said], np.exp(shard.top_logprobs[said], dtype=float)
            mass += np.bincount(tokens.ravel(), chances.ravel(), minlength=n_vocab)
        if not mass.any():
            raise UsageError(f"{store.folder} has no answers to learn from: generate more")
        best = np.sort(np.argsort(-mass, kind="stable")[: min(size, n_vocab)])
        return cls.of(best.astype(np.int32), n_vocab, float(mass[best].sum() / mass.sum()))

    @classmethod
    def of(cls, tokens: NDArray[np.int32], n_vocab: int, coverage: float) -> Vocabulary:
        ids = np.full(n_vocab, -1, np.int64)
        ids[tokens] = np.arange(len(tokens))
        return cls(tokens, ids, coverage)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that a head learns from: B conversations, row i about token i, T rows each.

    Attributes:
        features: (B, T, n_embd) float32: of token i.
        next_tokens: (B, T) int64: token i + 1.
        next_features: (B, T, n_embd) float32: of token i + 1.
        ids: (B, T, K) int64: the likeliest tokens after token i + 1, by output id; -1 where the
            head has none.
        chances: (B, T, K) float32: theirs; 0 where the head has none.
        weights: (B, T) float32: how much a row matters.
        greedy: (B,) bool: were the answers decoded greedily?
    """

    features: Tensor
    next_tokens: Tensor
    next_features: Tensor
    ids: Tensor
    chances: Tensor
    weights: Tensor
    greedy: Tensor

    def part(self, chosen: slice) -> Batch:
        """Some of its conversations."""
        return Batch(*(getattr(self, one.name)[chosen] for one in fields(self)))


def batch_of(shard: Shard, vocabulary: Vocabulary, chosen: NDArray[np.intp]) -> Batch:
    """A batch of the chosen conversations."""
    features = torch.from_numpy(shard.features[chosen].astype(np.float32))
    ids = vocabulary.ids[shard.top_tokens[chosen, 1:]]
    chances = np.exp(shard.top_logprobs[chosen, 1:], dtype=np.float32) * (ids >= 0)
    roles = shard.roles[chosen]
    about = roles[:, 1:].copy()
    about[:, :-1] = np.maximum(about[:, :-1], roles[:, 2:])  # the first token of an answer, too
    weights = np.where(about == ASSISTANT, 1.0, np.where(about == USER, _USER_WEIGHT, 0.0))
    return Batch(
        features[:, :-1],
        torch.from_numpy(shard.tokens[chosen, 1:].astype(np.int64)),
        features[:, 1:],
        torch.from_numpy(ids),
        torch.from_numpy(chances),
        torch.from_numpy(weights.astype(np.float32)),
        torch.from_numpy(chosen % 2 == 0),
    )


def batches_of(shard: Shard, vocabulary: Vocabulary, size: int) -> Iterator[Batch]:
    """All of a shard, `size` conversations at a time."""
    chosen = np.arange(len(shard.tokens))
    for begin in range(0, len(chosen), size):
        yield batch_of(shard, vocabulary, chosen[begin : begin + size])
