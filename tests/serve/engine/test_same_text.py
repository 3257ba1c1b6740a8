"""Many conversations at a time: each text is the one that it would be alone, and exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
import tiny
from engine import N_VOCAB, PIPELINES, PROMPT, assert_exact
from served import GREEDY, TEXT, Told, opened, plain, request, together
from tiny_head import write_head
from tiny_medusa import write_heads

import spec_cpu
from spec_cpu import SamplingParams
from spec_cpu.llama.model import STOCK
from spec_cpu.serve.engine.pace import ReadingPace

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


SAMPLED = SamplingParams(temperature=1.0)
DRAFTS = ["none", "ngram", "model", "eagle", "medusa"]
ASKED = [
    request(TEXT, max_tokens=40),
    request(TEXT[:9] * 4, max_tokens=30, references=[TEXT * 2]),
    request(TEXT[:2], max_tokens=20, sampling=SAMPLED, seed=1),
    request(TEXT[::-1], max_tokens=50, sampling=PIPELINES["penalties"], seed=2),
    request([*TEXT, *TEXT[5:]], max_tokens=25, sampling=SAMPLED, seed=3),
    request(TEXT[:1], max_tokens=35, sampling=SAMPLED, seed=4),
]


LONG = [request(TEXT * n, max_tokens=12) for n in (1, 4, 8)]
LONG.append(replace(LONG[1], sampling=SAMPLED, seed=9))


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_text_is_that_of_plain_decoding(files: dict[str, Path], draft: str) -> None:
    expected = plain(files["target"], ASKED)
    with opened(files["target"], files.get(draft, draft), slots=4, k=6) as engine:
        answers = together(engine, ASKED)
        assert [one.ids for one in answers] == expected
        again = together(engine, ASKED[::-1])[::-1]  # where other texts left what they began with
        assert [one.ids for one in again] == expected
    for told in (answers, again):
        assert (sum(one.end.stats.accepted for one in told) > 0) == (draft != "none")


@pytest.mark.parametrize("draft", ["ngram", "model", "eagle"])
def test_with_kernels_each_text_is_the_one_that_it_is_alone(
    files: dict[str, Path], draft: str
) -> None:
    how = {"kernels": "on", "k": 6}
    alone = []
    for asked in ASKED:
        with opened(files["target"], files.get(draft, draft), slots=1, **how) as engine:
            assert engine.model.kernels != STOCK
            alone.append(Told())
            engine.submit(asked, alone[-1])
            alone[-1].wait()
    with opened(files["target"], files.get(draft, draft), slots=4, **how) as engine:
        answers = together(engine, ASKED)
    assert [one.ids for one in answers] == [one.ids for one in alone]


@pytest.mark.parametrize("draft", ["none", "model", "eagle", "medusa"])
@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_prompts_may_be_read_in_parts_of_any_size(
    files: dict[str, Path], draft: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plain(files["target"], LONG)
    monkeypatch.setattr(ReadingPace, "tokens", lambda *_, **__: parts)
    with opened(files["target"], files.get(draft, draft), slots=3, ctx=256) as engine:
        answers = together(engine, LONG)
    assert [one.ids for one in answers] == expected
    for asked, one in zip(LONG, answers, strict=True):
        total = len(asked.tokens) - 1
        assert [reading.total for reading in one.readings] == [total] * len(one.readings)
        done = [0, *(reading.done for reading in one.readings)]
        assert done[-1] == total
        begun = one.end.reused_tokens
        wanted = 33 if draft == "eagle" else 1 if draft == "medusa" else 0  # with their features
        sizes = [b - max(a, begun) for a, b in pairwise(done)]
        assert all(0 <= size <= parts + wanted for size in sizes), sizes
        assert len(sizes) >= (total - begun - wanted) / parts


@pytest.mark.parametrize("kind", ["eagle", "medusa"])
def test_a_head_drafts_as_it_does_for_one_text(
    tiny_target: Path, tmp_path: Path, kind: str
) -> None:
    """What it goes on from are the features of its own text."""
    write = write_head if kind == "eagle" else write_heads
    head = write(tmp_path / "head.gguf", tiny_target)
    texts = ["hello", "a much longer text " * 4, "b"]
    expected = []
    for text in texts:
        with spec_cpu.load(
            tiny_target, head, k=4, shape="tree", sampling=GREEDY, threads=1, ctx=256
        ) as session:
            session.answer(text, raw=True, max_tokens=40, ignore_eos=True)
            expected.append((session.stats.cycles, session.stats.drafted, session.stats.accepted))
            tokens = session.stats.prompt_tokens
    with opened(tiny_target, head, ctx=256) as engine:
        asked = [
            request(engine.model.vocab.tokenize(text, add_special=True), max_tokens=40)
            for text in texts
        ]
        assert len(asked[-1].tokens) == tokens
        stats = [one.end.stats for one in together(engine, asked)]
    assert [(one.cycles, one.drafted, one.accepted) for one in stats] == expected
    assert sum(one.accepted for one in stats) > 0
