"""All positions of a text at once draft what each would draft alone, token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from spec_cpu.train import eagle
from spec_cpu.train.eagle import EagleNet, EagleShape, KeysValues

Array = NDArray[np.float64]

SHAPE = EagleShape(n_embd=24, n_vocab=11, n_head=4, n_head_kv=2, n_ff=40, rope_base=100.0)
LENGTH, DEPTH = 9, 4


@pytest.fixture(scope="module")
def net() -> EagleNet:
    torch.manual_seed(3)
    made = EagleNet(SHAPE)
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 0.1))
            if weight.ndim == 1:
                weight.add_(1.0)
    return made.double()


class Reference:
    """The same block for a single position, in loops: row n of a cache of keys and values."""

    def __init__(self, net: EagleNet) -> None:
        self.w = {name: value.numpy() for name, value in net.state_dict().items()}
        self.keys: list[Array] = []
        self.values: list[Array] = []

    def step(self, feature: Array, embedding: Array) -> Array:
        w, position = self.w, len(self.keys)
        x = w["combine.weight"] @ np.concatenate([feature, embedding]) + w["combine.bias"]
        y = self._norm(x, "attn_norm")
        n, rot = SHAPE.n_embd, SHAPE.n_rot
        kv = SHAPE.n_head_kv * rot
        q, k, v = np.split(w["attn_qkv.weight"] @ y, [n, n + kv])
        self.keys.append(self._turned(k.reshape(-1, rot), position))
        self.values.append(v.reshape(-1, rot))
        out = []
        for head, query in enumerate(self._turned(q.reshape(-1, rot), position)):
            group = head // (SHAPE.n_head // SHAPE.n_head_kv)
            scores = np.array([query @ key[group] for key in self.keys]) / np.sqrt(rot)
            chances = np.exp(scores - scores.max())
            values = np.array([value[group] for value in self.values])
            out.append(chances / chances.sum() @ values)
        x = x + w["attn_output.weight"] @ np.concatenate(out)
        gate, up = np.split(w["ffn_gate_up.weight"] @ self._norm(x, "ffn_norm"), 2)
        x = x + w["ffn_down.weight"] @ (gate / (1.0 + np.exp(-gate)) * up)
        return self._norm(x, "output_norm")

    def _norm(self, x: Array, name: str) -> Array:
        scaled: Array = x / np.sqrt((x**2).mean() + SHAPE.epsilon) * self.w[f"{name}.weight"]
        return scaled

    def _turned(self, heads: Array, position: int) -> Array:
        out = heads.copy()
        for j in range(SHAPE.n_rot // 2):
            angle = position / SHAPE.rope_base ** (2 * j / SHAPE.n_rot)
            a, b = heads[:, 2 * j], heads[:, 2 * j + 1]
            out[:, 2 * j] = a * np.cos(angle) - b * np.sin(angle)
            out[:, 2 * j + 1] = a * np.sin(angle) + b * np.cos(angle)
        return out


@pytest.mark.parametrize("queries", [1, 4, 256])
def test_step_s_is_the_sth_token_of_a_chain_from_every_position(
    net: EagleNet, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eagle, "QUERIES", queries)
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2, LENGTH, SHAPE.n_embd))
    embeddings = rng.standard_normal((2, LENGTH, SHAPE.n_embd))
    before: list[KeysValues] = []
    given = torch.from_numpy(features)
    steps = []
    with torch.no_grad():
        for _ in range(DEPTH):
            hidden = net(given, torch.from_numpy(embeddings), before)
            steps.append(hidden.numpy())
            given = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), 1)
    for b in range(2):
        for last in range(LENGTH):  # the last row whose feature is known
            chain = Reference(net)
            for i in range(last + 1):
                hidden = chain.step(features[b, i], embeddings[b, i])
            for s in range(DEPTH):
                row = last + s
                if row == LENGTH:
                    break
                if s:
                    hidden = chain.step(hidden, embeddings[b, row])
                np.testing.assert_allclose(steps[s][b, row], hidden, atol=1e-4)
