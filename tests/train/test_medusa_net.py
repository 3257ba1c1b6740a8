"""Medusa heads in training: where they look, what they learn, and that llama.cpp runs the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from spec_cpu.heads.file import read_head
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.heads.medusa import MedusaHead, write_medusa
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.train.batches import Batch, Vocabulary, batches_of
from spec_cpu.train.export import medusa_weights
from spec_cpu.train.medusa import HEADS, MedusaPupil
from spec_cpu.train.shards import ShardStore
from spec_cpu.train.start import medusa_pupil
from spec_cpu.train.training import Settings, Trainer, sample_features

SETTINGS = Settings(epochs=20, rate=5e-3, depth=HEADS, deepen=0.0)


@pytest.fixture
def vocabulary(talker: Model, spoken: ShardStore) -> Vocabulary:
    return Vocabulary.most_likely(spoken, talker.vocab.n, 60)


@pytest.fixture
def pupil(talker: Model, spoken: ShardStore, vocabulary: Vocabulary) -> MedusaPupil:
    torch.set_num_threads(1)
    return medusa_pupil(talker, vocabulary.tokens, sample_features(spoken))


@pytest.fixture
def batch(spoken: ShardStore, vocabulary: Vocabulary) -> Batch:
    return next(batches_of(spoken.read(0), vocabulary, 8))


def stirred(pupil: MedusaPupil) -> MedusaPupil:
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in pupil.net.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return pupil


def test_they_begin_as_the_output_of_the_target(
    talker: Model, pupil: MedusaPupil, batch: Batch, vocabulary: Vocabulary
) -> None:
    """But for the size of the feature, which the norm levels out."""
    with torch.no_grad():
        hidden = pupil.net(batch.features[0, 5] / pupil.spread)
        logits = pupil.output(hidden).numpy()
    with Context(talker, n_ctx=64, threads=1, hidden=True) as context:
        context.decode([5, 6, 7], range(3), [(0,)] * 3)
        feature = context.hidden_rows(3)[2].copy()
        rows = context.decode([8], [3], [(0,)])[0].copy()
        after = context.hidden_rows(1)[0].copy()
    with torch.no_grad():
        mine = pupil.output(pupil.net(torch.from_numpy(after) / pupil.spread)).numpy()
    assert logits.shape == (HEADS, len(vocabulary.tokens))
    assert feature.shape == after.shape
    for head in mine:
        assert np.corrcoef(head, rows[vocabulary.tokens])[0, 1] > 0.999
    np.testing.assert_array_equal(mine[0], mine[1])


def test_head_m_looks_m_tokens_ahead(pupil: MedusaPupil, batch: Batch) -> None:
    """Said from row i - m, for m = 0, 1, ...: what follows token i + 1."""
    net = stirred(pupil).net
    with torch.no_grad():
        drafted = pupil.draft(batch, HEADS)
        for m, hidden in enumerate(drafted):
            for row in (m, m + 1, 20):
                said = net(batch.features[:, row - m] / pupil.spread)[:, m]
                torch.testing.assert_close(hidden[:, row], said)


def test_accuracy_counts_candidates_whose_ancestors_were_found(
    pupil: MedusaPupil, spoken: ShardStore, vocabulary: Vocabulary
) -> None:
    stirred(pupil)
    batches = list(batches_of(spoken.read(0), vocabulary, 8))
    ranks = 3
    counted = pupil.accuracy(batches, ranks)
    right, tried = np.zeros((HEADS, ranks)), np.zeros((HEADS, 1))
    for batch in batches:
        best = [pupil.output(hidden).topk(ranks).indices for hidden in pupil.draft(batch, HEADS)]
        for b, row in np.ndindex(batch.weights.shape):
            for m in range(HEADS):  # the draft began m rows before
                if row < m or batch.weights[b, row] != 1.0 or not batch.greedy[b]:
                    continue
                above = ((m - d, row - d) for d in range(1, m + 1))
                if all(batch.ids[b, at, 0] in best[n][b, at] for n, at in above):
                    tried[m] += 1
                    right[m] += (best[m][b, row] == batch.ids[b, row, 0]).numpy()
    assert tried.min() > 0
    np.testing.assert_allclose(counted, right / tried, atol=1e-6)


def test_they_learn(
    pupil: MedusaPupil,
    spoken: ShardStore,
    unheard: ShardStore,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    made = Trainer(pupil, spoken, unheard, vocabulary, SETTINGS, tmp_path)
    before = made.evaluate()
    losses: list[float] = []
    after = made.train(lambda progress: losses.append(progress.loss))
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert len(after.greedy) == HEADS
    assert after.overlap[0] > before.overlap[0]
    assert after.expected > before.expected


def test_llama_cpp_gives_what_torch_does(
    talker: Model, pupil: MedusaPupil, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    from spec_cpu.draft.passes.medusa_passes import MedusaPasses

    stirred(pupil)
    feature = np.random.default_rng(0).standard_normal(talker.n_embd).astype(np.float32)
    with torch.no_grad():
        hidden = pupil.net(torch.from_numpy(feature) / pupil.spread)
        logits = pupil.output(hidden).numpy()
    path = tmp_path / "heads.gguf"
    accuracy = torch.rand(HEADS, 4)
    weights = medusa_weights(pupil.net, pupil.spread, vocabulary.tokens, accuracy)
    write_medusa(path, weights, HeadTarget.of(talker), quantization="F16", acceptance=(0.5,))
    head = read_head(path)
    assert isinstance(head, MedusaHead)
    assert head.label.acceptance == (0.5,)
    np.testing.assert_array_equal(head.accuracy, accuracy)
    assert head.label.tokens.tolist() == vocabulary.tokens.tolist()
    with Model(path) as model, Context(model, n_ctx=HEADS, threads=1, flash=False) as context:
        rows = MedusaPasses(head, context).run(feature)
        np.testing.assert_allclose(rows, logits, atol=0.03 * logits.std())
