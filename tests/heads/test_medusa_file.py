"""The file of Medusa heads: what is written is read; what makes no sense is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_medusa
from tiny_head import edited

from spec_cpu.errors import ModelError
from spec_cpu.heads.file import is_head, read_head
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.heads.medusa import MedusaHead, write_medusa
from spec_cpu.llama.model import Model


@pytest.mark.parametrize("quantization", ["Q8_0", "Q4_0", "F16"])
def test_what_is_written_is_read(target: Path, tmp_path: Path, quantization: str) -> None:
    tokens = [9, 4, 30, 5]
    weights = tiny_medusa.medusa_weights(target, tokens=tokens)
    path = tiny_medusa.write_heads(
        tmp_path / "h.gguf",
        target,
        tokens=tokens,
        quantization=quantization,
        acceptance=(0.5, 0.25),
        card="on sand",
    )
    assert is_head(path)
    head = read_head(path)
    assert isinstance(head, MedusaHead)
    assert (head.label.kind, head.label.card) == ("medusa", "on sand")
    assert head.label.acceptance == (0.5, 0.25)
    assert head.label.tokens.tolist() == sorted(tokens)
    np.testing.assert_array_equal(head.scale, weights.scale)
    np.testing.assert_array_equal(head.bias, weights.bias.ravel())
    np.testing.assert_array_equal(head.accuracy, weights.accuracy)
    rows = weights.blocks.reshape(-1, 64)
    off = np.abs(head.blocks - rows) / np.abs(rows).max(axis=1, keepdims=True)
    assert off.max() <= 0.5 / 127 + 1e-6


def test_weights_must_fit(target: Path, tmp_path: Path) -> None:
    weights = tiny_medusa.medusa_weights(target)
    with pytest.raises(ValueError, match="bias is"):
        replace(weights, bias=weights.bias[:, 1:])
    with pytest.raises(ValueError, match="two outputs"):
        replace(weights, tokens=np.zeros_like(weights.tokens))
    with Model(target) as model:
        made_for = replace(HeadTarget.of(model), n_embd=32)
    with pytest.raises(ValueError, match="width is 64, the target's 32"):
        write_medusa(tmp_path / "h.gguf", weights, made_for)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 2}, "kind medusa, version 2.*update spec-cpu"),
        ({"blocks": None}, "spec_cpu.head.blocks is missing"),
        ({"scale": [1.0]}, "spec_cpu.head.scale is missing, or not"),
        ({"block_bias": [1.0] * 65}, "do not fit"),
        ({"accuracy": [0.5] * 4}, "do not fit"),
    ],
)
def test_heads_that_cannot_be_used_are_refused(
    target: Path, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    good = tiny_medusa.write_heads(tmp_path / "good.gguf", target, tokens=[5, 6, 7])
    with pytest.raises(ModelError, match=message):
        read_head(edited(good, tmp_path / "bad.gguf", **changed))
