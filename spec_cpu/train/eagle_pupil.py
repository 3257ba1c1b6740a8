"""How an EAGLE network drafts in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from spec_cpu.train.batches import Batch, Vocabulary
from spec_cpu.train.eagle import EagleNet, KeysValues
from spec_cpu.train.shards import ShardStore
from spec_cpu.train.training import sample_features, spread

_IMITATION = 0.2  # weight of the distance to the true features


@dataclass(slots=True)
class Scales:
    """What features and embeddings are divided by before they are combined: (n_embd,) each."""

    features: Tensor
    embeddings: Tensor

    @classmethod
    def of(cls, store: ShardStore, vocabulary: Vocabulary, embeddings: Tensor) -> Scales:
        """By how much those of the data are spread."""
        known = embeddings[torch.from_numpy(vocabulary.tokens).long()]
        return cls(spread(sample_features(store)), spread(known))


@dataclass(slots=True)
class EaglePupil:
    """An EAGLE network that drafts several steps on its own features: a `training.Pupil`.

    Attributes:
        embeddings: (n_vocab, n_embd) float16: the target's.
    """

    net: EagleNet
    embeddings: Tensor
    scales: Scales
    depth: int = 5

    @property
    def output(self) -> nn.Linear:
        return self.net.output

    def draft(self, batch: Batch, depth: int) -> list[Tensor]:
        """The head's features of token i + 1 in each step of drafting: (B, T, n_embd)."""
        known = functional.embedding(batch.next_tokens, self.embeddings).float()
        embedded = known / self.scales.embeddings
        features = batch.features
        before: list[KeysValues] = []
        hiddens: list[Tensor] = []
        for _ in range(depth):
            hidden = self.net(features / self.scales.features, embedded, before)
            hiddens.append(hidden)
            # Row i of the next step: what this one made of token i, seen from token i - 1.
            features = functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
        return hiddens

    def extra_loss(self, hidden: Tensor, next_features: Tensor) -> Tensor:
        """The distance to the true features, which stand where its own do once they are known."""
        away = (hidden.float() - next_features) / self.scales.features
        none = torch.zeros(()).expand_as(away)
        distance: Tensor = functional.smooth_l1_loss(away, none, reduction="none").mean(1)
        return _IMITATION * distance
