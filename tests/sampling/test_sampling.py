"""The pipeline: equal to llama.cpp's own samplers; the laws of Distribution."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.errors import LogitsError, ModelError, UsageError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.logits import Logits
from spec_cpu.sampling.pipeline import Distribution, Pipeline, SamplingParams, point_mass

OFF = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
PROMPT = "The history of the bicycle begins in the nineteenth century, when the first"

SETTINGS = {
    "defaults": SamplingParams(),
    "temperature alone": replace(OFF, temperature=0.7),
    "hot": SamplingParams(temperature=1.5),
    "top-k alone": replace(OFF, top_k=17),
    "top-p alone": replace(OFF, top_p=0.9),
    "top-p near 1": replace(OFF, top_p=0.999),
    "min-p alone": replace(OFF, min_p=0.02),
    "top-k 1": SamplingParams(top_k=1),
    "top-k beyond the vocabulary": SamplingParams(top_k=1_000_000),
    "repeat penalty": SamplingParams(repeat_penalty=1.3),
    "frequency and presence": SamplingParams(frequency_penalty=0.6, presence_penalty=0.4),
    "all penalties, short memory": SamplingParams(
        repeat_penalty=1.1, frequency_penalty=0.2, presence_penalty=0.1, penalty_last_n=4
    ),
    "logit bias": SamplingParams(logit_bias={260: 5.0, 28: -np.inf, 1: -2.0}),
    "everything": SamplingParams(
        temperature=1.1,
        top_k=100,
        top_p=0.8,
        min_p=0.01,
        repeat_penalty=1.2,
        frequency_penalty=-0.1,
        presence_penalty=0.3,
        logit_bias={300: 3.0},
    ),
    "greedy": SamplingParams(temperature=0),
}


@pytest.fixture(scope="module")
def rows(default_target: Model) -> tuple[list[int], Logits]:
    """A text and the real logits after each of its tokens."""
    tokens = default_target.vocab.tokenize(PROMPT)
    with Context(default_target, n_ctx=256) as context:
        return tokens, KVSequence(context).score(tokens).copy()


@pytest.fixture
def chain(request: pytest.FixtureRequest, rows: tuple[list[int], Logits]) -> Iterator[int]:
    """llama.cpp's own sampler chain for a setting, in the order of its command line."""
    params: SamplingParams = request.param
    n_vocab = rows[1].shape[1]
    sampler = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    biases = (llama_cpp.llama_logit_bias * len(params.logit_bias))(
        *(llama_cpp.llama_logit_bias(token, bias) for token, bias in params.logit_bias.items())
    )
    for part in (
        llama_cpp.llama_sampler_init_logit_bias(n_vocab, len(biases), biases),
        llama_cpp.llama_sampler_init_penalties(
            n_vocab,
            params.penalty_last_n,
            params.repeat_penalty,
            params.frequency_penalty,
            params.presence_penalty,
        ),
        llama_cpp.llama_sampler_init_top_k(params.top_k),
        llama_cpp.llama_sampler_init_top_p(params.top_p, 0),
        llama_cpp.llama_sampler_init_min_p(params.min_p, 0),
        llama_cpp.llama_sampler_init_temp(params.temperature),
        llama_cpp.llama_sampler_init_dist(0),
    ):
        llama_cpp.llama_sampler_chain_add(sampler, part)
    yield sampler
    llama_cpp.llama_sampler_free(sampler)


def llama_distribution(chain: int, logits: Logits, history: list[int]) -> dict[int, float]:
    llama_cpp.llama_sampler_reset(chain)
    for token in history:
        llama_cpp.llama_sampler_accept(chain, token)
    data = (llama_cpp.llama_token_data * len(logits))(
        *((token, logit, 0.0) for token, logit in enumerate(logits.tolist()))
    )
    array = llama_cpp.llama_token_data_array(data, len(logits), -1, False)
    llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
    return {array.data[i].id: array.data[i].p for i in range(array.size) if array.data[i].p > 0}


@pytest.mark.parametrize(
    ("chain", "params"),
    [pytest.param(params, params, id=name) for name, params in SETTINGS.items()],
    indirect=["chain"],
)
def test_equal_to_llama_cpp(
    chain: int, params: SamplingParams, rows: tuple[list[int], Logits]
) -> None:
    tokens, logits = rows
    for i in (0, 3, len(tokens) - 1):
        ours = Pipeline(params).distribution(logits[i], tokens[: i + 1])
        theirs = llama_distribution(chain, logits[i], tokens[: i + 1])
        support = np.arange(len(ours.p)) if ours.ids is None else ours.ids
        support = support[ours.p > 1e-30]
        assert set(support.tolist()) >= {t for t, p in theirs.items() if p > 1e-30}
        if ours.ids is not None:
            assert set(support.tolist()) == set(theirs)
        for token in support[:200].tolist():
            assert ours.prob(token) == pytest.approx(theirs.get(token, 0.0), abs=1e-5)


def test_recent_history_is_all_that_matters(rows: tuple[list[int], Logits]) -> None:
    tokens, logits = rows
    pipeline = Pipeline(SETTINGS["all penalties, short memory"])
    whole = pipeline.distribution(logits[0], tokens)
    recent = pipeline.distribution(logits[0], pipeline.recent(tokens))
    np.testing.assert_array_equal(whole.p, recent.p)
    assert Pipeline(SamplingParams()).recent(tokens) == []


flat_logits = st.integers(2, 300).flatmap(
    lambda n: st.lists(st.floats(-30, 30, width=32), min_size=n, max_size=n)
)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 40, 1000]),
    top_p=st.sampled_from([0.1, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.5]),
)


@given(logits=flat_logits, params=params, history=st.lists(st.integers(0, 400), max_size=80))
@settings(max_examples=300)
def test_a_distribution_is_one(
    logits: list[float], params: SamplingParams, history: list[int]
) -> None:
    result = Pipeline(params).distribution(np.array(logits, np.float32), history)
    assert result.p.sum() == pytest.approx(1)
    assert (result.p >= 0).all()
    if result.ids is not None:
        assert (np.diff(result.ids) > 0).all()
        assert result.ids[-1] < len(logits)
        if params.top_k > 0:
            assert len(result.ids) <= params.top_k
    token = result.sample(np.random.default_rng(0))
    assert result.prob(token) > 0


@given(
    logits=flat_logits,
    params=params,
    bias=st.dictionaries(st.integers(0, 8), st.sampled_from([-np.inf, -2.0, 3.0]), max_size=9),
    history=st.lists(st.integers(0, 400), max_size=80),
)
def test_a_row_of_logits_is_the_same_afterwards(
    logits: list[float], params: SamplingParams, bias: dict[int, float], history: list[int]
) -> None:
    row, pipeline = np.array(logits, np.float32), Pipeline(replace(params, logit_bias=bias))
    asked: tuple[Callable[[], object], ...] = (
        lambda: pipeline.distribution(row, history),
        lambda: pipeline.argmax(row, history),
        lambda: pipeline.likeliest(row, history, 2),
        lambda: pipeline.ranked(row, history, 2),
    )
    for question in asked:
        with suppress(LogitsError):  # where all of few tokens are forbidden
            question()
        assert row.tolist() == np.array(logits, np.float32).tolist()


@st.composite
def distributions(draw: st.DrawFn) -> Distribution:
    n = draw(st.integers(1, 12))
    p = np.array(draw(st.lists(st.floats(0.01, 1), min_size=n, max_size=n)))
    p = p / p.sum()
    if draw(st.booleans()):
        return Distribution(None, p)
    ids = draw(st.lists(st.integers(0, 20), min_size=n, max_size=n, unique=True))
    return Distribution(np.array(sorted(ids), np.intp), p)


def dense(distribution: Distribution, n: int = 21) -> np.ndarray:
    return np.array([distribution.prob(token) for token in range(n)])


@given(
    logits=flat_logits,
    params=params,
    history=st.lists(st.integers(0, 400), max_size=80),
    data=st.data(),
)
@settings(deadline=None)
def test_logits_of_some_tokens_are_those_of_all_with_the_others_forbidden(
    logits: list[float], params: SamplingParams, history: list[int], data: st.DataObject
) -> None:
    n = len(logits)
    # Of tokens that tie any may be cut off: none do here.
    row = np.array(logits, np.float32) + np.arange(n, dtype=np.float32) * 0.0123
    some = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    tokens = np.array(sorted(some), np.intp)
    everything = np.full(n, -np.inf, np.float32)
    everything[tokens] = row[tokens]
    pipeline = Pipeline(params)
    few = pipeline.distribution(row[tokens], history, tokens)
    all_of_them = pipeline.distribution(everything, history)
    np.testing.assert_allclose(few.probs_at(all_of_them), all_of_them.p, atol=1e-6)
    assert few.p.sum() == pytest.approx(1)
    assert pipeline.argmax(row[tokens], history, tokens) == pipeline.argmax(everything, history)


def test_a_bias_can_forbid_all_tokens_of_some() -> None:
    pipeline = Pipeline(replace(OFF, logit_bias={3: -np.inf, 5: -np.inf, 7: 2.0}))
    assert not pipeline.allows_any(np.array([3, 5]))
    assert pipeline.allows_any(np.array([3, 7]))
    assert pipeline.allows_any(np.array([2, 3, 5]))
    assert Pipeline(OFF).allows_any(np.array([3]))


@given(p=distributions(), q=distributions(), scale=st.floats(0, 1))
def test_sparse_arithmetic_is_dense_arithmetic(
    p: Distribution, q: Distribution, scale: float
) -> None:
    assert p.overlap(q) == pytest.approx(np.minimum(dense(p), dense(q)).sum())
    assert p.overlap(q) == pytest.approx(q.overlap(p))
    excess = np.maximum(scale * dense(p) - dense(q), 0)
    assert p.excess(q, scale).sum() == pytest.approx(excess.sum())
    if excess.sum() > 1e-9:
        np.testing.assert_allclose(
            dense(p.reweighted(p.excess(q, scale))), excess / excess.sum(), atol=1e-9
        )


@given(p=distributions(), seed=st.integers(0, 1000))
def test_only_possible_tokens_are_drawn(p: Distribution, seed: int) -> None:
    assert p.prob(p.sample(np.random.default_rng(seed))) > 0


def test_sample_follows_the_probabilities() -> None:
    p = Distribution(np.array([3, 8, 9]), np.array([0.2, 0.5, 0.3]))
    rng = np.random.default_rng(0)
    drawn = np.bincount([p.sample(rng) for _ in range(20_000)], minlength=10) / 20_000
    np.testing.assert_allclose(drawn[[3, 8, 9]], p.p, atol=0.02)


def test_point_mass() -> None:
    p = point_mass(7)
    assert (p.prob(7), p.prob(6), p.prob(8)) == (1, 0, 0)
    assert p.sample(np.random.default_rng(0)) == 7


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 1.5},
        {"repeat_penalty": 0.0},
        {"frequency_penalty": float("nan")},
        {"presence_penalty": float("inf")},
        {"penalty_last_n": -2},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: float("inf")}},
        {"logit_bias": {1: float("nan")}},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="must be"):
        replace(SamplingParams(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0), OFF], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_of_a_damaged_model_are_refused(params: SamplingParams, bad: float) -> None:
    logits = np.zeros(100, np.float32)
    logits[40] = bad
    with pytest.raises(ModelError, match="not finite"):
        Pipeline(params).distribution(logits, [])
