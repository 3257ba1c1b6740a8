"""What a head computes in llama.cpp is what its definition says, worked out in NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_head
from numpy.typing import NDArray

from spec_cpu.draft.passes.eagle_passes import EaglePasses
from spec_cpu.heads.eagle import EagleHead, EagleWeights, write_eagle
from spec_cpu.heads.file import read_head
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import find_tensor

Floats = NDArray[np.float64]
TOKENS = [5, 9, 31, 4, 9, 17, 8, 22]  # also such as the head cannot draft
DRAFTED = [20, 6, 5]


def norm(x: Floats, weight: NDArray[np.float32], eps: float) -> Floats:
    scaled: Floats = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight
    return scaled


def rotated(x: Floats, base: float) -> Floats:
    """Rotary positions, (rows, heads, width): each pair of neighbours turns by its own angle."""
    rows, _, width = x.shape
    angles = np.arange(rows)[:, None] * base ** (-np.arange(0, width, 2) / width)
    turned = x[..., 0::2] + 1j * x[..., 1::2]
    turned = turned * np.exp(1j * angles)[:, None]
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def forward(w: EagleWeights, inputs: Floats) -> tuple[Floats, Floats]:
    """Logits and hidden states of all rows."""
    rows, n = inputs.shape
    width = n // w.n_head

    def heads(matrix: NDArray[np.float32]) -> Floats:
        split: Floats = (x @ matrix.T).reshape(rows, -1, width)
        return split

    x = norm(inputs, w.attn_norm, w.norm_eps)
    query, key = rotated(heads(w.attn_q), w.rope_base), rotated(heads(w.attn_k), w.rope_base)
    group = w.n_head // w.n_head_kv
    key, value = np.repeat(key, group, axis=1), np.repeat(heads(w.attn_v), group, axis=1)
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(width)
    scores[:, np.triu(np.ones((rows, rows), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended = np.einsum("hij,jhd->ihd", weights, value).reshape(rows, n)
    middle = inputs + attended @ w.attn_output.T
    x = norm(middle, w.ffn_norm, w.norm_eps)
    gate = x @ w.ffn_gate.T
    out = middle + (gate / (1 + np.exp(-gate)) * (x @ w.ffn_up.T)) @ w.ffn_down.T
    hidden = norm(out, w.output_norm, w.norm_eps)
    return hidden @ w.output.T, hidden


@pytest.mark.parametrize("n_head_kv", [2, 1])
def test_llama_cpp_computes_the_definition(tmp_path: Path, n_head_kv: int) -> None:
    target = tiny.write_llama(tmp_path / "t.gguf", n_vocab=32, n_embd=64, scale=2)
    weights = tiny_head.eagle_weights(target, tokens=range(3, 30), noise=0.3, feature=0.8)
    kv = 32 * n_head_kv
    weights = replace(
        weights,
        n_head_kv=n_head_kv,
        attn_k=weights.attn_k[:kv],
        attn_v=weights.attn_v[:kv],
        bias=np.linspace(-0.2, 0.2, 64, dtype=np.float32),
        feature_scale=np.linspace(0.5, 1.5, 64, dtype=np.float32),
        embedding_scale=np.linspace(2.0, 0.5, 64, dtype=np.float32),
        rope_base=5e3,
        norm_eps=1e-4,
    )
    path = tmp_path / "h.gguf"
    with Model(target) as model:
        write_eagle(path, weights, HeadTarget.of(model), quantization="F16")
    head = read_head(path)
    assert isinstance(head, EagleHead)
    embedding = find_tensor(target, "token_embd.weight")
    features = np.random.default_rng(1).standard_normal((len(TOKENS), 64)).astype(np.float32)

    def inputs(tokens: list[int], features: NDArray[np.floating]) -> Floats:
        embedded = embedding.rows(tokens).astype(float)
        rows: Floats = (features * head.feature_scale) @ head.combine_feature.T
        return rows + (embedded * head.embedding_scale) @ head.combine_embedding.T + head.bias

    with (
        Model(path) as model,
        Context(model, n_ctx=64, threads=1, hidden=True, flash=False, max_outputs=1) as context,
    ):
        passes = EaglePasses(head, context, embedding)
        passes.take_in(TOKENS[:-1], features[:-1])
        rows = inputs(TOKENS, features.astype(float))
        logits = passes.step(TOKENS[-1:], features[-1:])
        # Then deeper, where the head's own hidden state stands for the feature.
        for token in DRAFTED:
            expected, hidden = forward(weights, rows)
            np.testing.assert_allclose(logits, expected[-1], atol=0.05)
            np.testing.assert_allclose(passes.feature, hidden[-1], atol=0.03)
            rows = np.vstack([rows, inputs([token], hidden[-1:])])
            logits = passes.step([token], passes.feature[None])
