"""The network of Medusa heads, as torch trains it, and how it drafts in training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from spec_cpu.train.batches import Batch
from spec_cpu.train.held_out import mixed

HEADS = 3
RANKS = 8  # candidates of a head whose accuracy is measured


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """Sizes of the heads.

    Attributes:
        n_embd: the width of the target's features.
        n_vocab: V', the reduced vocabulary.
        heads: K.
        epsilon: of the norm.
    """

    n_embd: int
    n_vocab: int
    heads: int = HEADS
    epsilon: float = 1e-5


class MedusaNet(nn.Module):
    """The feature of token i -> what follows token i + m, for m = 1 .. K.

    Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
    Heads". Each head is a residual block; the output is one for all. The norm between the two is
    llama.cpp's, which runs it.
    """

    def __init__(self, shape: MedusaShape) -> None:
        super().__init__()
        self.shape = shape
        d = shape.n_embd
        self.blocks = nn.Linear(d, shape.heads * d)
        self.output_norm = nn.RMSNorm(d, shape.epsilon)
        self.output = nn.Linear(d, shape.n_vocab, bias=False)
        # Nothing is added to the feature at first: each head begins as the target's own output.
        nn.init.zeros_(self.blocks.weight)
        nn.init.zeros_(self.blocks.bias)

    def forward(self, features: Tensor) -> Tensor:
        """What `output` makes each head's logits of.

        Args:
            features: (..., n_embd) divided by their spread.

        Returns:
            (..., K, n_embd).
        """
        added = functional.silu(self.blocks(features)).unflatten(-1, (self.shape.heads, -1))
        hidden: Tensor = self.output_norm(features.unsqueeze(-2) + added)
        return hidden


@dataclass(slots=True)
class MedusaPupil:
    """Medusa heads in training: a `training.Pupil`.

    Attributes:
        spread: (n_embd,): what features are divided by.
    """

    net: MedusaNet
    spread: Tensor

    @property
    def output(self) -> nn.Linear:
        return self.net.output

    @property
    def depth(self) -> int:
        return self.net.shape.heads

    def draft(self, batch: Batch, depth: int) -> list[Tensor]:
        """Each head's, where what it foretells follows token i + 1: (B, T, n_embd)."""
        hidden = self.net(batch.features / self.spread)
        heads = hidden.unbind(-2)[:depth]
        length = hidden.shape[1]
        # Head m says in row i - m + 1 what follows token i + 1.
        return [functional.pad(h, (0, 0, m, 0))[:, :length] for m, h in enumerate(heads)]

    def extra_loss(self, hidden: Tensor, next_features: Tensor) -> float:
        return 0.0

    def accuracy(self, batches: Iterable[Batch], ranks: int = RANKS) -> Tensor:
        """The chance that head m's r-th likeliest token is right if those before it are.

        That is where the target decodes greedily, and where for each token before it one of the
        candidates of its head is right.

        Returns:
            (K, ranks) float32.
        """
        ranks = min(ranks, self.output.out_features)
        right = torch.zeros(self.depth, ranks)
        tried = torch.zeros(self.depth, 1)
        for batch in batches:
            found = torch.ones_like(batch.weights, dtype=torch.bool)
            said = (batch.weights == 1.0) & batch.greedy[:, None]
            with torch.no_grad(), mixed():
                hiddens = self.draft(batch, self.depth)
            for m, hidden in enumerate(hiddens):
                with torch.no_grad(), mixed():
                    best = self.output(hidden).topk(ranks, -1).indices
                is_right = best == batch.ids[..., :1]
                rows = said & found
                rows[:, :m] = False
                right[m] += (is_right & rows[..., None]).sum((0, 1))
                tried[m] += rows.sum()
                # Seen from the next token, what was found here is what came before it.
                found = functional.pad(found & is_right.any(-1), (1, 0))[:, :-1]
        return right / tried.clamp_min(1.0)
