"""The loss of training: its value and slopes are those of the plain formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spec_cpu.train import loss as losses
from spec_cpu.train.loss import soft_cross_entropy

N, WIDTH, VOCABULARY, LIKELIEST = 23, 8, 40, 5


def plain(hidden: Tensor, output: Tensor, ids: Tensor, chances: Tensor, weights: Tensor) -> Tensor:
    logs = (hidden @ output.T).log_softmax(1).gather(1, ids)
    return -((chances * logs).sum(1) * weights).sum() / weights.sum()


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_value_and_slopes_are_the_formulas(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "ROWS", rows)
    random = torch.Generator().manual_seed(rows)
    ids = torch.stack([torch.randperm(VOCABULARY, generator=random)[:LIKELIEST] for _ in range(N)])
    ids[:, -2:] = 0  # as tokens that the head lacks: without a probability
    chances = torch.rand(N, LIKELIEST, generator=random).double() / LIKELIEST
    chances[:, -2:] = 0.0
    weights = torch.rand(N, generator=random).double() + 0.1
    found = []
    for function in (plain, soft_cross_entropy):
        random.manual_seed(1)
        hidden = torch.randn(N, WIDTH, generator=random).double().requires_grad_()
        output = torch.randn(VOCABULARY, WIDTH, generator=random).double().requires_grad_()
        loss = function(hidden, output, ids, chances, weights)
        (3.0 * loss).backward()  # type: ignore[no-untyped-call]
        assert hidden.grad is not None
        assert output.grad is not None
        found.append((loss.detach(), hidden.grad, output.grad))
    for expected, given in zip(*found, strict=True):
        torch.testing.assert_close(given, expected)


def test_rows_without_weight_teach_nothing() -> None:
    hidden = torch.randn(3, WIDTH, requires_grad=True)
    output = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    ids, nothing = torch.zeros(3, 1, dtype=torch.long), torch.zeros(3)
    loss = soft_cross_entropy(hidden, output, ids, torch.ones(3, 1), nothing)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss == 0.0
    assert hidden.grad is not None
    assert not hidden.grad.any()
