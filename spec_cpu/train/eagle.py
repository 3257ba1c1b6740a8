"""The network of an EAGLE head, as torch trains it and as llama.cpp will run it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

QUERIES = 256  # whose scores are held at a time


@dataclass(frozen=True, slots=True)
class EagleShape:
    """Sizes of a head.

    Attributes:
        n_embd: the width of the target's features and of its embeddings.
        n_vocab: V', the reduced vocabulary.
        n_head, n_head_kv: attention heads, and those of keys and values.
        n_ff: the width of the feed-forward part.
        rope_base, epsilon: of the positions and of the norms.
    """

    n_embd: int
    n_vocab: int
    n_head: int
    n_head_kv: int
    n_ff: int
    rope_base: float = 10000.0
    epsilon: float = 1e-5

    @property
    def n_rot(self) -> int:
        return self.n_embd // self.n_head


class Norm(nn.RMSNorm):
    """In the precision of its weights, whatever comes in: torch fuses no other."""

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = super().forward(x.to(self.weight.dtype))
        return normed


class EagleNet(nn.Module):
    """(feature of token i, embedding of token i + 1) -> feature of token i + 1, and what follows.

    One layer as llama.cpp builds it for the architecture `llama`. EAGLE: Li et al. 2024, "EAGLE:
    Speculative Sampling Requires Rethinking Feature Uncertainty". Trained on its own features as
    well, as in Zhang et al. 2024, "Learning Harmonized Representations for Speculative Sampling"
    (HASS), and Li et al. 2025, "EAGLE-3".
    """

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.shape = shape
        d, kv = shape.n_embd, shape.n_head_kv * shape.n_rot
        self.combine = nn.Linear(2 * d, d)
        self.attn_norm = Norm(d, shape.epsilon)
        self.attn_qkv = nn.Linear(d, d + 2 * kv, bias=False)
        self.attn_output = nn.Linear(d, d, bias=False)
        self.ffn_norm = Norm(d, shape.epsilon)
        self.ffn_gate_up = nn.Linear(d, 2 * shape.n_ff, bias=False)
        self.ffn_down = nn.Linear(shape.n_ff, d, bias=False)
        self.output_norm = Norm(d, shape.epsilon)
        self.output = nn.Linear(d, shape.n_vocab, bias=False)
        for layer in (self.attn_output, self.ffn_down):
            nn.init.normal_(layer.weight, std=0.02 / 2**0.5)
        for layer in (self.attn_qkv, self.ffn_gate_up, self.combine):
            nn.init.normal_(layer.weight, std=0.02)
        nn.init.zeros_(self.combine.bias)

    def forward(self, features: Tensor, embeddings: Tensor, before: list[KeysValues]) -> Tensor:
        """A step of drafting at every position of a text at once.

        Step s = 1 + len(before) drafts the s-th token after the last known one: it sees true
        features up to s - 1 tokens back, and the head's own from there on.

        Args:
            features, embeddings: (B, T, n_embd) scaled as `training` says; row i: the feature of
                token i, true or the last step's, and the embedding of token i + 1.
            before: keys and values of the steps before; this step's are added.

        Returns:
            (B, T, n_embd): the feature of token i + 1, after the last norm.
        """
        x = self.combine(torch.cat((features, embeddings), -1))
        x = x + self.attn_output(self._attention(self.attn_norm(x), before))
        gate, up = self.ffn_gate_up(self.ffn_norm(x)).chunk(2, -1)
        x = x + self.ffn_down(functional.silu(gate) * up)
        hidden: Tensor = self.output_norm(x)
        return hidden

    def _attention(self, x: Tensor, before: list[KeysValues]) -> Tensor:
        shape = self.shape
        batch, length, d = x.shape
        kv = shape.n_head_kv * shape.n_rot
        q, k, v = (
            part.unflatten(-1, (-1, shape.n_rot)).transpose(1, 2)
            for part in self.attn_qkv(x).split((d, kv, kv), -1)
        )
        cos, sin = _angles(length, shape, x.device)
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        groups = shape.n_head // shape.n_head_kv
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        before.append(KeysValues(k, v))
        if len(before) == 1:
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            out = _attend_steps(q, before)
        return out.transpose(1, 2).reshape(batch, length, d)


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Keys and values of one step of drafting: (B, heads, T, n_rot) each."""

    k: Tensor
    v: Tensor


def _attend_steps(q: Tensor, steps: list[KeysValues]) -> Tensor:
    """Attention of step s: to step 1 at least s - 1 tokens back, to each later step at one token.

    The token that step m stands at, seen from position i in step s, is i - (s - m). Some queries at
    a time, and their scores anew on the way back: all at once would take gigabytes.
    """
    first, s = steps[0], len(steps)
    shifted = [_shifted(step, s - m) for m, step in enumerate(steps[1:], start=2)]
    near_k, near_v = (
        torch.stack([x.k for x in shifted], -2),
        torch.stack([x.v for x in shifted], -2),
    )
    blocks: list[Tensor] = []
    for begin in range(0, q.shape[2], QUERIES):
        rows = slice(begin, begin + QUERIES)
        known = max(1, min(begin + QUERIES, q.shape[2]) - (s - 1))  # tokens that the last one sees
        blocks.append(
            checkpoint(
                _attend,
                q[:, :, rows],
                first.k[:, :, :known],
                first.v[:, :, :known],
                near_k[:, :, rows],
                near_v[:, :, rows],
                begin - (s - 1),
                use_reentrant=False,
            )
        )
    return torch.cat(blocks, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, near_k: Tensor, near_v: Tensor, last: int) -> Tensor:
    """Attention of (B, heads, R, n_rot) queries to tokens, and to M more of each one's own.

    Args:
        k, v: (B, heads, T, n_rot): query i sees those up to `last` + i.
        near_k, near_v: (B, heads, R, M, n_rot).
    """
    far = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(last + 1)
    scores = (q @ k.transpose(-1, -2)).masked_fill(far, -1e9)
    near = (q[..., None, :] * near_k).sum(-1)
    both = torch.cat((scores, near), -1).float() * q.shape[-1] ** -0.5
    weights = both.softmax(-1).to(q.dtype)
    out: Tensor = weights[..., : k.shape[2]] @ v
    return out + (weights[..., k.shape[2] :, None] * near_v).sum(-2)


def _shifted(step: KeysValues, n: int) -> KeysValues:
    """Row i is what stood n rows before it; the first rows, which nothing precedes, are zero."""
    if n == 0:
        return step
    return KeysValues(
        functional.pad(step.k, (0, 0, n, 0))[:, :, :-n],
        functional.pad(step.v, (0, 0, n, 0))[:, :, :-n],
    )


def _angles(length: int, shape: EagleShape, device: torch.device) -> tuple[Tensor, Tensor]:
    powers = torch.arange(0, shape.n_rot, 2, device=device) / shape.n_rot
    angles = torch.arange(length, device=device)[:, None] / shape.rope_base**powers
    return angles.cos(), angles.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions over neighbouring pairs, as llama.cpp does for the architecture `llama`."""
    even, odd = x.float()[..., 0::2], x.float()[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return turned.flatten(-2).to(x.dtype)
