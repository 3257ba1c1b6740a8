"""What a head is trained by: cross-entropy against the target's distribution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 512  # whose logits are held at a time
_LEAST = 1e-6  # sum of weights: a batch may have nothing to learn from


def soft_cross_entropy(
    hidden: Tensor, output: Tensor, ids: Tensor, chances: Tensor, weights: Tensor
) -> Tensor:
    """The mean over rows of -sum p log q, q = softmax(output @ hidden), by `weights`.

    The same as by `logsumexp`, with its gradient worked out on the way, some rows at a time: there
    are thousands of logits for each row, and passes over all of them would take most of a step.

    Args:
        hidden: (N, n).
        output: (V, n).
        ids: (N, K) int64: the tokens, as rows of `output`, that have a probability.
        chances: (N, K): p; whatever is missing to 1 counts for nothing.
        weights: (N,).
    """
    loss: Tensor = _SoftCrossEntropy.apply(hidden, output, ids, chances, weights)
    return loss


class _SoftCrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, output: Tensor, ids: Tensor, chances: Tensor, weights: Tensor
    ) -> Tensor:
        dtype = (
            torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else output.dtype
        )
        inputs, matrix = hidden.to(dtype), output.to(dtype)
        shares = (weights / weights.sum().clamp_min(_LEAST))[:, None]
        to_hidden, to_output = torch.empty_like(hidden), torch.zeros_like(output)
        loss = torch.zeros((), dtype=output.dtype)
        for begin in range(0, len(hidden), ROWS):
            rows = slice(begin, begin + ROWS)
            p = chances[rows] * shares[rows]
            logits = (inputs[rows] @ matrix.T).to(output.dtype)
            logits -= logits.amax(1, keepdim=True)
            known = logits.gather(1, ids[rows])
            total = logits.exp_().sum(1, keepdim=True)
            loss -= (p * (known - total.log())).sum()
            # d loss / d logits = q * sum p - p
            slope = logits.mul_(p.sum(1, keepdim=True) / total).scatter_add_(1, ids[rows], -p)
            slope = slope.to(dtype)
            to_hidden[rows] = slope @ matrix
            to_output += slope.T @ inputs[rows]
        ctx.save_for_backward(to_hidden, to_output)
        return loss

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_output = ctx.saved_tensors
        return slopes[0] * to_hidden, slopes[0] * to_output, None, None, None
