"""Exactness through the real engine, on tiny random models with distributions to enumerate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
from engine import (
    FAMILIES,
    N_VOCAB,
    PIPELINES,
    PROMPT,
    SURE,
    CutShort,
    exact_pairs,
    fresh_logits,
    opened,
    run,
    start,
    text,
)
from scipy import stats

from spec_cpu.draft.passes.model import ModelSource
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

SAMPLES = 5_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "pipeline", "k"),
    [
        ("block", "plain", 3),
        ("token", "plain", 3),
        ("token", "defaults", 2),
        ("block", "penalties", 2),
        ("block", "cut short", 3),
        ("token", "cut short", 3),
    ],
)
def test_samples_follow_the_exact_distribution(
    models: Path, rule: str, pipeline: str, k: int
) -> None:
    target = tiny.write_llama(models / "t8.gguf", n_vocab=N_VOCAB, scale=1.5)
    draft = tiny.write_llama(models / "d8.gguf", n_vocab=N_VOCAB, scale=1.5, noise=0.7)
    cut = pipeline == "cut short"
    params, rng = PIPELINES["plain" if cut else pipeline], np.random.default_rng(7)
    policy = CutShort(k) if cut else None
    drawn: Counter[tuple[int, ...]] = Counter()
    rejected = 0
    lengths: set[int] = set()
    with opened(target, draft) as (sequence, drafter):
        for _ in range(SAMPLES):
            steps = start(
                sequence,
                drafter,
                PROMPT,
                k=k,
                params=params,
                rng=rng,
                max_tokens=k + 1,
                rule=rule,
                policy=policy,
            )
            first = next(steps)
            lengths.add(first.drafted)
            rejected += first.accepted < first.drafted
            pair = first.tokens if len(first.tokens) > 1 else first.tokens + next(steps).tokens
            drawn[tuple(pair[:2])] += 1
    exact = exact_pairs(target, params)
    assert {pair for pair in drawn if exact[pair] == 0} == set()
    assert rejected > SAMPLES / 20, "the draft is too good for this to test anything"
    if cut:
        assert len(lengths) > 2, "blocks of several lengths"
    common = [pair for pair, chance in exact.items() if chance * SAMPLES >= 8]
    observed = [*(drawn[pair] for pair in common)]
    expected = [*(exact[pair] * SAMPLES for pair in common)]
    observed.append(SAMPLES - sum(observed))
    expected.append(SAMPLES - sum(expected))
    keep = [i for i, value in enumerate(expected) if value > 1]
    observed, expected = [observed[i] for i in keep], [expected[i] for i in keep]
    scale = sum(observed) / sum(expected)
    assert stats.chisquare(observed, [value * scale for value in expected]).pvalue > SURE


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("k", [1, 4, 7])
def test_greedy_text_is_that_of_plain_decoding(models: Path, noise: float, k: int) -> None:
    target = tiny.write_llama(models / "g.gguf", n_vocab=32, n_layer=2, scale=4)
    draft = tiny.write_llama(models / f"g{noise}.gguf", n_vocab=32, n_layer=2, scale=4, noise=noise)
    rng, params = np.random.default_rng(0), SamplingParams(temperature=0, repeat_penalty=1.3)
    prompt = [tiny.BOS, 5, 9, 7]
    with opened(target, draft) as (sequence, drafter):
        plain = run(sequence, None, prompt, k=0, params=params, rng=rng, max_tokens=100)
        fast = run(sequence, drafter, prompt, k=k, params=params, rng=rng, max_tokens=100)
    assert text(fast) == text(plain)
    if noise == 0:
        assert all(cycle.accepted == cycle.drafted for cycle in fast)


def test_a_draft_equal_to_the_target_is_always_accepted(models: Path) -> None:
    """Also when sampled: so the draft's cache, one token short after a full block, is in step."""
    target = tiny.write_llama(models / "same.gguf", n_vocab=32, scale=2)
    rng = np.random.default_rng(0)
    with opened(target, target) as (sequence, drafter):
        done = run(
            sequence, drafter, [tiny.BOS, 5], k=3, params=SamplingParams(), rng=rng, max_tokens=120
        )
    assert sum(cycle.accepted for cycle in done) == sum(cycle.drafted for cycle in done)
    assert all(overlap == pytest.approx(1, abs=0.02) for c in done for overlap in c.overlaps)


@pytest.mark.parametrize("draft_ctx", [32, 64])
def test_a_small_draft_context_slides(models: Path, draft_ctx: int) -> None:
    target = tiny.write_llama(models / "long.gguf", n_vocab=32, n_ctx=512, scale=3)
    rng, params = np.random.default_rng(0), SamplingParams(temperature=0)
    prompt = [tiny.BOS, *(3 + i % 20 for i in range(70))]
    with Model(target) as model, Context(model, n_ctx=400, threads=1) as context:
        sequence = KVSequence(context)
        plain = run(sequence, None, prompt, k=0, params=params, rng=rng, max_tokens=200)
        small = Model(target)
        drafter = ModelSource(small, Context(small, n_ctx=draft_ctx, threads=1), n_vocab=32)
        fast = run(sequence, drafter, prompt, k=4, params=params, rng=rng, max_tokens=200)
        drafter.close()
    assert text(fast) == text(plain)
    assert sum(cycle.drafted for cycle in fast) > 100


def test_a_draft_that_cannot_shift_reads_its_window_again(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "shift", lambda *_args, **_named: False)
    test_a_small_draft_context_slides(models, 32)


@pytest.mark.parametrize("family", FAMILIES)
def test_rejected_tokens_leave_nothing_behind(models: Path, family: str) -> None:
    """After many cycles with rejections the cache gives the logits of a fresh context."""
    path = FAMILIES[family](models / f"fresh-{family}.gguf")
    bad = tiny.write_llama(models / "bad.gguf", seed=9, n_vocab=32, scale=3)
    rng = np.random.default_rng(0)
    prompt = [tiny.BOS, 5, 6]
    with opened(path, bad) as (sequence, drafter):
        done = run(sequence, drafter, prompt, k=5, params=SamplingParams(), rng=rng, max_tokens=150)
        assert sum(cycle.accepted for cycle in done) < sum(cycle.drafted for cycle in done) / 2
        tokens = [*prompt, *text(done)]
        assert sequence.tokens == tokens[:-1]
        used = sequence.score(tokens[-1:]).copy()
    np.testing.assert_allclose(used, fresh_logits(path, tokens), atol=0.02)


@pytest.mark.parametrize("dtype", ["F32", "F16", "Q4_0"])
def test_every_row_of_a_pass_is_that_of_single_steps(models: Path, dtype: tiny.DType) -> None:
    path = tiny.write_llama(models / f"rows-{dtype}.gguf", n_vocab=32, n_layer=2, dtype=dtype)
    tokens = [tiny.BOS, 5, 8, 13, 21, 4, 9]
    with Model(path) as model, Context(model, n_ctx=64, threads=1) as context:
        sequence = KVSequence(context)
        together = sequence.score(tokens).copy()
        sequence.reuse([])
        single = np.stack([sequence.score([token])[0].copy() for token in tokens])
    np.testing.assert_allclose(together, single, atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("target_pad", "draft_pad"), [(5, 0), (0, 5), (9, 2)])
def test_padded_vocabularies_are_exact(models: Path, target_pad: int, draft_pad: int) -> None:
    """Vocabularies of different sizes: q is 0 where only the target has a token."""
    target = tiny.write_llama(models / f"pt{target_pad}.gguf", n_vocab=N_VOCAB, n_pad=target_pad)
    draft = tiny.write_llama(
        models / f"pd{draft_pad}.gguf", n_vocab=N_VOCAB, n_pad=draft_pad, noise=0.5
    )
    params, rng = PIPELINES["plain"], np.random.default_rng(3)
    with opened(target, draft) as (sequence, drafter):
        n_vocab = sequence.context.model.vocab.n
        counts = np.zeros(n_vocab)
        for _ in range(5_000):
            done = run(sequence, drafter, PROMPT, k=2, params=params, rng=rng, max_tokens=3)
            counts[text(done)[0]] += 1
        sequence.reuse(PROMPT[:-1])
        p = Pipeline(params).distribution(sequence.score(PROMPT[-1:])[0], PROMPT)
    assert stats.chisquare(counts, p.p * counts.sum()).pvalue > SURE


def test_the_context_is_never_exceeded(models: Path) -> None:
    target = tiny.write_llama(models / "full.gguf", n_vocab=32, scale=2)
    rng = np.random.default_rng(0)
    with opened(target, target, n_ctx=40) as (sequence, drafter):
        done = run(
            sequence, drafter, [tiny.BOS, 5], k=6, params=SamplingParams(), rng=rng, max_tokens=99
        )
    assert len(text(done)) == 38
