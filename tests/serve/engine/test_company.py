"""Many conversations at a time: each text is the one that it would be alone, and exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import tiny
from company import Told, opened, request
from engine import N_VOCAB, PIPELINES, PROMPT, assert_exact

from spec_cpu import SamplingParams

SAMPLES = 1_500


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws of requests without a seed are the same in each run of the tests."""
    numbers = count()
    monkeypatch.setattr("spec_cpu.serve.engine.answer.secrets.randbits", lambda _: next(numbers))


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("pipeline", ["plain", "penalties"])
@pytest.mark.parametrize("draft", ["none", "ngram", "model"])
def test_samples_follow_the_exact_distribution_in_company(
    models: Path, draft: str, pipeline: str
) -> None:
    target = tiny.write_llama(models / "t8.gguf", n_vocab=N_VOCAB, scale=1.5)
    small = tiny.write_llama(models / "d8.gguf", n_vocab=N_VOCAB, scale=1.5, noise=0.7)
    params = replace(PIPELINES[pipeline], logit_bias={tiny.EOS: -np.inf})
    found: Counter[tuple[int, ...]] = Counter()
    drafted = 0
    others = [
        request([tiny.BOS, 7, 6], max_tokens=9),
        request([tiny.BOS, 3, 3, 3], max_tokens=7, sampling=PIPELINES["defaults"]),
    ]
    mine = request(PROMPT, max_tokens=2, sampling=params, references=[PROMPT * 2])
    with opened(target, small if draft == "model" else draft, ctx=32, slots=4) as engine:
        going: list[Told] = []
        for i in range(SAMPLES):
            told = Told()
            engine.submit(others[i % 2] if i % 4 == 0 else mine, told)
            if i % 4:
                going.append(told)
            if i % 40 == 39:
                found.update(tuple(one.ids) for one in going)
                drafted += sum(one.end.stats.drafted for one in going)
                going = []
    assert (drafted > 0) == (draft != "none")
    assert_exact(found, target, params)
