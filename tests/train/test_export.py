"""A trained network and the head that llama.cpp runs are the same function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spec_cpu.heads.eagle import EagleHead, write_eagle
from spec_cpu.heads.file import read_head
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.train.eagle import EagleNet
from spec_cpu.train.eagle_pupil import Scales
from spec_cpu.train.export import eagle_weights
from spec_cpu.train.start import eagle_net, embeddings, shape_of

TOKENS = np.array([3, 5, 8, 13, 21, 34, 55, 89], np.int32)
LENGTH = 12


@pytest.fixture(scope="module")
def net(talker: Model) -> EagleNet:
    shape = replace(shape_of(talker, len(TOKENS)), n_head=4, n_head_kv=2, n_ff=96)
    made = eagle_net(talker, shape, TOKENS, seed=0)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.15)
    return made


def test_llama_cpp_gives_what_torch_does(talker: Model, net: EagleNet, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = net.shape.n_embd
    scales = Scales(
        torch.from_numpy(rng.uniform(0.5, 2.0, n).astype(np.float32)),
        torch.from_numpy(rng.uniform(0.1, 0.4, n).astype(np.float32)),
    )
    with torch.no_grad():
        for half in net.combine.weight.chunk(2, 1):  # written in 8 bits: these are exact so
            step = half.abs().amax(1, keepdim=True) / 127
            half.copy_((half / step).round() * step)
    features = rng.standard_normal((LENGTH, n)).astype(np.float32)
    tokens = rng.integers(0, talker.vocab.n, LENGTH)
    embedded = embeddings(talker)[torch.from_numpy(tokens)].float()
    with torch.no_grad():
        given = torch.from_numpy(features) / scales.features
        hidden = net(given[None], (embedded / scales.embeddings)[None], [])[0]
        logits = net.output(hidden).numpy()

    path = tmp_path / "head.gguf"
    weights = eagle_weights(net, scales, TOKENS, n_ctx=64)
    write_eagle(path, weights, HeadTarget.of(talker), quantization="F16")
    head = read_head(path)
    assert isinstance(head, EagleHead)
    assert head.label.tokens.tolist() == TOKENS.tolist()
    inputs = (features * head.feature_scale) @ head.combine_feature.T
    inputs += (embedded.numpy() * head.embedding_scale) @ head.combine_embedding.T
    with (
        Model(path) as model,
        Context(model, n_ctx=32, threads=1, hidden=True, max_outputs=LENGTH) as context,
    ):
        rows = context.decode_embeddings(inputs + head.bias, range(LENGTH), [(0,)] * LENGTH)
        np.testing.assert_allclose(rows, logits, atol=0.03, rtol=0.01)
        np.testing.assert_allclose(
            context.hidden_rows(LENGTH), hidden.numpy(), atol=0.03, rtol=0.01
        )
    assert logits.std() > 0.5


def test_a_network_begins_with_what_the_target_has(talker: Model) -> None:
    made = eagle_net(talker, shape_of(talker, len(TOKENS)), TOKENS, seed=0)
    logits_of = made.output.weight.detach().numpy()
    with Context(talker, n_ctx=8, threads=1, hidden=True) as context:
        logits = context.decode([5], [0], [(0,)])[0].copy()
        hidden = context.hidden_rows(1)[0].copy()
    np.testing.assert_allclose(logits_of @ hidden, logits[TOKENS], atol=1e-3)
    assert made.shape.n_head == 2
    assert made.shape.n_ff == 64
    assert made.shape.epsilon == pytest.approx(1e-5)


def test_starting_leaves_the_random_numbers_of_others_alone(talker: Model) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    eagle_net(talker, shape_of(talker, len(TOKENS)), TOKENS, seed=0)
    assert torch.equal(torch.rand(3), expected)
