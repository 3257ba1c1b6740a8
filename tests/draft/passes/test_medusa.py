"""Drafts from Medusa heads: exact through the engine, the best tree by measured accuracies."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import engine
import numpy as np
import pytest
import tiny
import tiny_medusa
from engine import N_VOCAB, PIPELINES, PROMPT, assert_exact, text
from head_engine import BIASED, GREEDY, followed

import spec_cpu
from spec_cpu import defaults
from spec_cpu.draft.base import Follows, Scored
from spec_cpu.draft.passes.medusa import MedusaSource
from spec_cpu.draft.passes.medusa_passes import MedusaPasses
from spec_cpu.draft.reader import Reader
from spec_cpu.errors import ModelError
from spec_cpu.heads.file import read_head
from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

SAMPLES = 4_000

start = partial(engine.start, k=5)


def heads_of(path: Path) -> MedusaHead:
    head = read_head(path)
    assert isinstance(head, MedusaHead)
    return head


def opened(
    target: Path, heads: Path, *, paths: int = 4
) -> AbstractContextManager[tuple[KVSequence, MedusaSource]]:
    def drafter() -> MedusaSource:
        head, model = heads_of(heads), Model(heads)
        k = len(head.accuracy)
        context = Context(model, n_ctx=k, threads=1, max_outputs=k, flash=False)
        return MedusaSource(head, model, context)

    return followed(target, drafter, n_ctx=256, paths=paths)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["plain", "penalties", "bias"])
def test_samples_follow_the_exact_distribution(models: Path, pipeline: str) -> None:
    """Though the heads have half of the tokens."""
    target = tiny.write_llama(models / "m8.gguf", n_vocab=N_VOCAB, scale=1.5)
    heads = tiny_medusa.write_heads(models / "m8h.gguf", target, tokens=[7, 3, 4, 2])
    params, rng = {**PIPELINES, "bias": BIASED}[pipeline], np.random.default_rng(7)
    found: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    with opened(target, heads) as (sequence, drafter):
        for _ in range(SAMPLES):
            steps = start(sequence, drafter, PROMPT, params=params, rng=rng)
            first = next(steps)
            accepted += first.accepted > 0
            pair = first.tokens if len(first.tokens) > 1 else first.tokens + next(steps).tokens
            found[tuple(pair[:2])] += 1
    assert SAMPLES / 20 < accepted < SAMPLES * 0.95
    assert_exact(found, target, params)


@pytest.fixture(scope="module")
def pair(small_target: Path, models: Path) -> tuple[Path, Path]:
    return small_target, tiny_medusa.write_heads(models / "small-medusa.gguf", small_target)


@pytest.mark.parametrize("k", [1, 7, 24])
def test_greedy_text_is_that_of_plain_decoding(pair: tuple[Path, Path], k: int) -> None:
    params = replace(GREEDY, repeat_penalty=1.3)
    prompt = [tiny.BOS, 5, 9, 7]
    with opened(*pair) as (sequence, drafter):
        plain = list(start(sequence, None, prompt, params=params, k=0, max_tokens=100))
        fast = list(start(sequence, drafter, prompt, params=params, k=k, max_tokens=100))
    assert text(fast) == text(plain)
    assert sum(cycle.drafted for cycle in fast) > 50


def test_a_pass_is_what_the_weights_say(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    weights = tiny_medusa.medusa_weights(pair[0], tokens=[9, 4, 30, 5])
    heads = tiny_medusa.write_heads(
        tmp_path / "h.gguf", pair[0], tokens=[9, 4, 30, 5], quantization="F16"
    )
    feature = np.random.default_rng(3).standard_normal(len(weights.scale)).astype(np.float32)
    x = weights.scale * feature
    z = np.einsum("kij,j->ki", weights.blocks, x) + weights.bias
    h = x + z / (1 + np.exp(-z))
    h *= weights.output_norm / np.sqrt((h**2).mean(1, keepdims=True) + weights.norm_eps)
    expected = h @ weights.output[weights.tokens.argsort()].T
    with Model(heads) as model, Context(model, n_ctx=3, threads=1, flash=False) as context:
        passes = MedusaPasses(heads_of(heads), context)
        wide = np.append(feature, np.zeros(8, np.float32))  # of a target widened with zeros
        for given_feature in (feature, wide, feature):
            np.testing.assert_allclose(passes.run(given_feature), expected, atol=0.05)
    assert expected.std() > 1


def test_a_head_is_as_sure_as_was_measured_and_says_nothing_that_is_forbidden(
    pair: tuple[Path, Path],
) -> None:
    """One pass says what may follow a node of any depth."""
    prompt, accuracy = [tiny.BOS, 5, 9], heads_of(pair[1]).accuracy.tolist()
    with opened(*pair) as (sequence, drafter):
        start(sequence, drafter, prompt, params=GREEDY)
        assert drafter.follows(()) == (), "no pass was made"
        (first,) = drafter.expand([()], Reader(Pipeline(GREEDY), []))
        forbidden = first[1][0]
        assert [sure for _, sure in first] == accuracy[0]
        for depth in range(len(accuracy) + 2):
            follows = drafter.follows((7,) * depth)
            assert follows == drafter.follows((8,) * depth)
            assert [sure for _, sure in follows] == [*accuracy, [], []][depth]
        params = replace(GREEDY, logit_bias={forbidden: -np.inf})
        (again,) = drafter.expand([()], Reader(Pipeline(params), []))
        assert forbidden not in dict(again)
        drafter.commit([4], Scored([9], np.zeros((1, 32), np.float32)))
        assert drafter.follows(()) == ()


def test_nothing_is_drafted_where_all_its_tokens_are_forbidden(
    models: Path, pair: tuple[Path, Path]
) -> None:
    heads = tiny_medusa.write_heads(models / "few-m.gguf", pair[0], tokens=[5, 6])
    params = SamplingParams(logit_bias={5: -np.inf, 6: -np.inf})
    with opened(pair[0], heads) as (sequence, drafter):
        done = list(start(sequence, drafter, [tiny.BOS, 9], params=params, max_tokens=20))
    assert all(cycle.drafted == 0 for cycle in done)


def test_the_first_token_alone_has_no_feature(pair: tuple[Path, Path]) -> None:
    with opened(*pair) as (sequence, drafter):
        done = list(start(sequence, drafter, [tiny.BOS], params=GREEDY, max_tokens=20))
    assert done[0].drafted == 0
    assert done[1].drafted == 5


def test_what_is_drafted_depends_on_the_text_alone(pair: tuple[Path, Path]) -> None:
    """After any cycles it goes on from the feature that a fresh drafter would read."""
    with opened(*pair) as (sequence, drafter):
        tokens = [tiny.BOS, 5, 9]
        steps = start(sequence, drafter, tokens, params=SamplingParams(), max_tokens=60)
        for _ in range(6):
            tokens = tokens + next(steps).tokens
        steps.close()
        here = all_said(drafter)
    with opened(*pair) as (sequence, drafter):
        start(sequence, drafter, tokens, params=GREEDY)
        assert all_said(drafter) == here


def all_said(drafter: MedusaSource) -> list[Follows]:
    """What each of its heads holds for likeliest now."""
    drafter.expand([()], Reader(Pipeline(GREEDY), []))
    return [drafter.follows((0,) * depth) for depth in range(drafter.layers)]


def test_damaged_heads_are_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    bad = tiny.corrupt(pair[1], tmp_path / "bad.gguf", "tensor-data")
    with (
        opened(pair[0], bad) as (sequence, drafter),
        pytest.raises(ModelError, match=r"bad\.gguf.*not finite"),
    ):
        list(start(sequence, drafter, [tiny.BOS, 9], params=GREEDY))


@pytest.fixture(scope="module")
def readable(tiny_target: Path, models: Path) -> tuple[Path, Path]:
    """A target that reads any text, and heads with some of its tokens."""
    heads = models / "readable-medusa.gguf"
    return tiny_target, tiny_medusa.write_heads(heads, tiny_target, tokens=range(2, 300))


def test_a_session_drafts_with_them(readable: tuple[Path, Path]) -> None:
    greedy = {"sampling": GREEDY, "ctx": 512}
    with (
        spec_cpu.load(*readable, k=6, **greedy) as session,
        spec_cpu.load(readable[0], "none", **greedy) as plain,
    ):
        assert [drafter.name for drafter in session.sources] == ["medusa"]
        assert session.shape == "tree"
        for turn in ("one, two, three", "and then", "and what"):
            fast = [step.text for step in session.generate(turn, max_tokens=60)]
            slow = [step.text for step in plain.generate(turn, max_tokens=60)]
            assert "".join(fast) == "".join(slow)
            assert session.stats.drafted > 60


@pytest.mark.slow
def test_a_session_weighs_trees_by_measured_costs(readable: tuple[Path, Path]) -> None:
    with spec_cpu.load(*readable, ctx=512, seed=1, recalibrate=True) as session:
        for _ in session.generate("one, two", max_tokens=60):
            pass
        costs = session.costs
    assert costs is not None
    assert costs.draft_step > 0
    assert costs.draft_window == 0
    assert len(costs.passes) == defaults.MAX_TREE_NODES + 1


def test_another_target_is_refused(readable: tuple[Path, Path], tmp_path: Path) -> None:
    other = tiny.write_llama(tmp_path / "other.gguf", n_vocab=330, n_ctx=1024)
    with pytest.raises(ModelError, match="another vocabulary"):
        spec_cpu.load(other, readable[1])


@pytest.mark.parametrize("k", [1, 8])
def test_the_heads_run_once_a_cycle_and_each_node_counts_once(
    readable: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    ran: list[object] = []
    run = MedusaPasses.run

    def counted(self: MedusaPasses, feature: Rows) -> Rows:
        ran.append(feature)
        return run(self, feature)

    monkeypatch.setattr(MedusaPasses, "run", counted)
    with spec_cpu.load(*readable, k=k, sampling=GREEDY, ctx=512, threads=1) as session:
        session.answer("one, two, three", max_tokens=30)
        stats = session.stats
    assert 0 < len(ran) <= stats.cycles
    assert stats.by_source["medusa"].drafted == stats.drafted
    assert stats.by_source["medusa"].accepted == stats.accepted
