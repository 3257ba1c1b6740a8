"""What is told of an answer and of the engine is what was so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from engine import PIPELINES
from served import PATIENCE, TEXT, Held, Told, ask, holding, opened, request, together

from spec_cpu import SamplingParams
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.logprobs import Logprobs, logprobs
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.request import Delta, Ended
from spec_cpu.text.streaming import Origin

SAMPLED = SamplingParams(temperature=1.0)
DRAFTS = ["none", "ngram", "model", "eagle", "medusa"]
ASKED = [
    request(TEXT, max_tokens=40, logprobs=5, alternatives=True),
    request(TEXT[:9] * 4, max_tokens=30, logprobs=0, references=[TEXT * 2], alternatives=True),
    request(TEXT[::-1], sampling=PIPELINES["penalties"], seed=2, logprobs=32, alternatives=True),
    request(TEXT[:2], max_tokens=20, sampling=SAMPLED, seed=1, alternatives=True),
    request(TEXT[:5], max_tokens=20),
]


@pytest.fixture(params=DRAFTS)
def engine(request: pytest.FixtureRequest, files: dict[str, Path]) -> Iterator[BatchingEngine]:
    with opened(files["target"], files.get(request.param, request.param), k=6) as engine:
        yield engine


def rows_of(path: Path, prompt: list[int], answer: list[int]) -> list[np.ndarray]:
    """The logits that each token of an answer was drawn from, from single steps."""
    with Model(path) as model, Context(model, n_ctx=256, threads=1) as context:
        sequence = KVSequence(context)
        rows = [sequence.score([token])[0].copy() for token in (*prompt, *answer)]
    return rows[len(prompt) - 1 : -1]


def test_log_probabilities_are_those_of_a_plain_pass(engine: BatchingEngine) -> None:
    """Natural logarithms of the target's own, before temperature, penalties and all."""
    for asked, told in zip(ASKED, together(engine, ASKED), strict=True):
        if asked.logprobs is None:
            assert all(token.logprobs is None for token in told.tokens)
            continue
        rows = rows_of(engine.model.path, list(asked.tokens), told.ids)
        for token, row in zip(told.tokens, rows, strict=True):
            found = token.logprobs
            assert found is not None
            exact = row.astype(np.float64)
            exact -= np.log(np.exp(exact).sum())
            assert found.own == pytest.approx(exact[token.id], abs=1e-5)
            assert len(found.top) == asked.logprobs
            likeliest = np.sort(exact)[::-1][: asked.logprobs]
            assert [value for _, value in found.top] == pytest.approx(list(likeliest), abs=1e-5)
            assert [exact[i] for i, _ in found.top] == pytest.approx(list(likeliest), abs=1e-5)


@pytest.mark.parametrize("top", [0, 1, 7, 8, 99])
def test_log_probabilities_of_a_row(top: int) -> None:
    """Of equal tokens all are as likely; what cannot come has no chance; sums are 1."""
    row = np.array([1.0, 3.0, 3.0, -np.inf, 80.0, 79.0, 2.0, -1e30], np.float32)
    before = row.copy()
    found = logprobs(row, 5, top)
    assert found == Logprobs(pytest.approx(-1.3132617), found.top)  # type: ignore[arg-type]
    assert [i for i, _ in found.top][:2] == [4, 5][:top]
    assert len(found.top) == min(top, 8)
    assert len({i for i, _ in found.top}) == len(found.top)
    if top >= 8:
        assert sum(np.exp(value) for _, value in found.top) == pytest.approx(1.0)
    assert logprobs(row, 3, 0).own == -np.inf
    np.testing.assert_array_equal(row, before)


def test_where_tokens_came_from_adds_up(engine: BatchingEngine) -> None:
    for asked, told in zip(ASKED, together(engine, ASKED), strict=True):
        names = set(told.end.stats.by_source)
        for delta in told.deltas:
            origins = [token.origin for token in delta.tokens]
            assert set(origins) <= set(get_args(Origin))
            *before, last = origins
            assert set(before) <= {"accepted"}
            if not delta.drafted:
                assert origins == ["plain"]
            elif len(origins) > delta.accepted:
                assert origins.count("accepted") == delta.accepted
                assert last in ("correction", "bonus")
            nodes = 0
            for token in delta.tokens:
                assert (len(token.sources) > 0) == (token.origin == "accepted")
                assert set(token.sources) <= names
                others = [other for other, _ in token.alternatives]
                chances = [chance for _, chance in token.alternatives]
                assert token.id not in others
                assert len(set(others)) == len(others)
                assert chances == sorted(chances, reverse=True)
                assert all(0 <= chance <= 1 for chance in chances)
                if token.origin == "correction" and asked.alternatives:
                    assert others
                if token.origin == "bonus" or not asked.alternatives:
                    assert not others
                nodes += len(others) + (token.origin == "accepted")
            assert nodes <= delta.drafted


def test_what_is_counted_adds_up(engine: BatchingEngine) -> None:
    before = engine.state
    assert (before.slots, before.context, before.tokens, before.cycles) == (3, 128, 0, 0)
    answers = together(engine, ASKED)
    by_source: Counter[tuple[str, str]] = Counter()
    for asked, told in zip(ASKED, answers, strict=True):
        stats = told.end.stats
        assert told.end.prompt_tokens == stats.prompt_tokens == len(asked.tokens)
        assert 0 <= told.end.reused_tokens == stats.reused_tokens < len(asked.tokens)
        assert stats.tokens == len(told.tokens) == asked.max_tokens
        assert stats.cycles == len(told.deltas)
        assert stats.drafted == sum(delta.drafted for delta in told.deltas)
        assert stats.accepted == sum(delta.accepted for delta in told.deltas)
        assert told.end.seed == asked.seed or asked.seed is None
        pieces = [engine.model.vocab.piece(token) for token in told.ids]
        assert told.text == b"".join(pieces).decode(errors="replace")
        for name, source in stats.by_source.items():
            by_source[name, "drafted"] += source.drafted
            by_source[name, "accepted"] += source.accepted
    state = engine.state
    assert state.tokens == 1 + sum(told.end.stats.tokens for told in answers)
    assert state.drafted == sum(told.end.stats.drafted for told in answers)
    assert state.accepted == sum(told.end.stats.accepted for told in answers)
    assert state.active == state.waiting == 0
    for name, (drafted, accepted) in state.by_source.items():
        assert (drafted, accepted) == (by_source[name, "drafted"], by_source[name, "accepted"])
    longest = max(told.end.stats.cycles for told in answers)
    assert longest <= state.cycles <= 1 + sum(told.end.stats.cycles for told in answers)


def test_the_shares_of_a_pass_are_those_of_who_is_in_it(engine: BatchingEngine) -> None:
    told = Held(Delta)
    with holding(engine, max_tokens=1):
        others = [ask(engine, tokens, max_tokens=90) for tokens in (TEXT, TEXT[::-1])]
        late = ask(engine, TEXT[:4], told, max_tokens=90)
    assert told.holds.wait(PATIENCE)
    state = engine.state
    told.let_go()
    assert (state.active, state.waiting) == (3, 0)
    assert state.width == sum(share.rows for share in state.shares)
    assert all(share.rows == 1 + share.drafted for share in state.shares)
    assert len({share.id for share in state.shares}) == len(state.shares) <= 3
    for one in (*others, late):
        assert one.end.finish == "length"


def test_an_answer_ends_at_a_stop_an_end_token_or_its_length(target: Path) -> None:
    """And what comes after is not told, however much was drafted."""
    with opened(target, "ngram", k=6) as engine:
        whole = ask(engine, TEXT, max_tokens=40, references=[TEXT]).wait()
        text = whole.text
        stop = text[10:13]
        stopped = ask(engine, TEXT, max_tokens=40, stops=[stop]).wait()
        assert stopped.end.finish == "stop"
        assert stopped.text == text[: text.index(stop)]
        for n in range(1, 12):
            cut = ask(engine, TEXT, max_tokens=n, references=[whole.ids]).wait()
            assert cut.ids == whole.ids[:n]
            assert cut.end.finish == "length"
            assert cut.end.stats.tokens == n
        ended = ask(
            engine,
            TEXT,
            ignore_eos=False,
            sampling=SamplingParams(temperature=0, logit_bias={2: 100.0}),
        ).wait()
        assert ended.end.finish == "stop"
        assert ended.ids == [2]
        assert ended.text == ""


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128])
def test_an_embedding_is_the_mean_of_the_final_hidden_states(
    engine: BatchingEngine, n: int
) -> None:
    """Also while answers are under way, which it does not change."""
    tokens = (TEXT * 5)[:n]
    with Context(engine.model, n_ctx=128, threads=1, hidden=True, max_outputs=128) as context:
        rows = []
        for i, token in enumerate(tokens):
            context.decode([token], [i], [(0,)])
            rows.append(context.hidden_rows(1)[0].astype(np.float64))
    expected = np.mean(rows, axis=0)
    alone = ask(engine, TEXT, max_tokens=90).ids
    beside = Told()
    engine.submit(request(TEXT, max_tokens=90), beside)
    for _ in range(2):
        found = engine.embed(tokens)
        assert found.dtype == np.float32
        assert found.shape == (engine.model.n_embd,)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)
    assert beside.ids == alone
    assert isinstance(beside.events[-1], Ended)
