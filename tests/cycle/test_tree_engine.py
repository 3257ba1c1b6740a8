"""Exactness of trees through the real engine, on tiny random models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
from engine import FAMILIES, N_VOCAB, PIPELINES, PROMPT, assert_exact, fresh_logits, text
from trees import FOLLOWS, start

from spec_cpu import defaults
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import SamplingParams

SAMPLES = 4_000


def opened(path: Path, paths: int = defaults.TREE_PATHS, n_ctx: int = 256) -> KVSequence:
    model = Model(path)
    context = Context(model, n_ctx=n_ctx, n_seq=paths, threads=1)
    return KVSequence(context, branches=range(1, paths))


def close(sequence: KVSequence) -> None:
    sequence.context.close()
    sequence.context.model.close()


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["plain", "penalties"])
@pytest.mark.parametrize("paths", [1, 2, defaults.TREE_PATHS])
def test_samples_follow_the_exact_distribution(models: Path, pipeline: str, paths: int) -> None:
    """Also where the context allows fewer paths than the tree has."""
    path = tiny.write_llama(models / "t8tree.gguf", n_vocab=N_VOCAB, scale=1.5)
    params, rng = PIPELINES[pipeline], np.random.default_rng(11)
    sequence, drafter = opened(path, paths), NgramSource(FOLLOWS)
    found: Counter[tuple[int, ...]] = Counter()
    accepted = branched = 0
    for _ in range(SAMPLES):
        done = start(sequence, drafter, PROMPT, params=params, rng=rng, max_tokens=8, pause=2)
        found[tuple(text(done)[:2])] += 1
        accepted += done[0].accepted > 0
        branched += done[0].depth < done[0].drafted
    close(sequence)
    assert SAMPLES / 20 < accepted < SAMPLES * 0.98
    assert bool(branched) == (paths > 1)
    assert_exact(found, path, params)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_that_of_plain_decoding_and_the_cache_that_of_a_fresh_context(
    models: Path, family: str
) -> None:
    path = FAMILIES[family](models / f"treegreedy-{family}.gguf")
    rng, params = np.random.default_rng(0), SamplingParams(temperature=0)
    prompt = [tiny.BOS, 5, 9, 7]
    sequence = opened(path)
    plain = start(sequence, None, prompt, params=params, rng=rng, max_tokens=200)
    told = text(plain)
    # A reference that is right most of the time, and branches where it is not.
    wrong = [token if i % 7 else 3 + i % 11 for i, token in enumerate(told)]
    drafter = NgramSource([told[:150], wrong, told[50:]])
    fast = start(sequence, drafter, prompt, params=params, rng=rng, max_tokens=200)
    tokens = [*prompt, *text(fast)]
    assert sequence.tokens == tokens[:-1]
    used = sequence.score(tokens[-1:]).copy()
    close(sequence)
    assert text(fast) == told
    assert sum(cycle.accepted for cycle in fast) > 50
    np.testing.assert_allclose(used, fresh_logits(path, tokens), rtol=0, atol=0.5)


@pytest.mark.slow
def test_a_tree_takes_as_many_tokens_as_the_chain_of_its_budget_or_more(models: Path) -> None:
    """The same look-ups, once pruned to a single path."""
    path = tiny.write_llama(models / "budget.gguf", n_vocab=32, n_layer=2, scale=2)
    rng = np.random.default_rng(0)
    prompt = [tiny.BOS, 5, 9, 7]
    sequence = opened(path)
    params = SamplingParams(temperature=0.7)
    told = [
        text(start(sequence, None, prompt, params=params, rng=rng, max_tokens=200))
        for _ in range(10)
    ]
    close(sequence)
    per_cycle = {}
    for paths in (1, defaults.TREE_PATHS):
        sequence, rng = opened(path, paths), np.random.default_rng(1)
        done = []
        for _ in range(15):
            drafter = NgramSource(told)
            done += start(sequence, drafter, prompt, params=params, rng=rng, max_tokens=150, k=6)
        close(sequence)
        per_cycle[paths] = len(text(done)) / len(done)
    assert per_cycle[defaults.TREE_PATHS] >= per_cycle[1]


def test_the_context_is_never_exceeded(models: Path) -> None:
    path = tiny.write_llama(models / "treefull.gguf", n_vocab=32, scale=2)
    sequence = opened(path, n_ctx=256)
    rng = np.random.default_rng(0)
    prompt = [tiny.BOS, *([5, 6, 7, 5, 6, 8] * 40)]
    params = SamplingParams()
    done = start(sequence, NgramSource(), prompt, params=params, rng=rng, max_tokens=99)
    close(sequence)
    assert len(text(done)) == 256 - len(prompt)


def test_cycles_say_how_deep_they_reached(models: Path) -> None:
    path = tiny.write_llama(models / "t8deep.gguf", n_vocab=N_VOCAB, scale=1.5)
    sequence, rng = opened(path), np.random.default_rng(0)
    drafter = NgramSource(FOLLOWS)
    for _ in range(200):
        params = PIPELINES["plain"]
        for cycle in start(sequence, drafter, PROMPT, params=params, rng=rng, max_tokens=9):
            assert cycle.accepted <= cycle.tried <= cycle.depth <= cycle.drafted
            assert len(cycle.tokens) == cycle.accepted + 1
            assert all(0 <= overlap <= 1 + 1e-9 for overlap in cycle.overlaps)
    close(sequence)
