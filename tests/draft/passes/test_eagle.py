"""Drafts from an EAGLE head: exact through the engine, and the head's cache in step."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import engine
import numpy as np
import pytest
import tiny
import tiny_head
from bench_module import load_bench
from engine import N_VOCAB, PIPELINES, PROMPT, CutShort, assert_exact, text
from head_engine import BIASED, GREEDY, followed
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.policy import Outcome
from spec_cpu.draft.base import Shape
from spec_cpu.draft.passes.eagle import EagleSource
from spec_cpu.draft.tree import TokenTree
from spec_cpu.errors import ModelError
from spec_cpu.heads.eagle import write_eagle
from spec_cpu.heads.file import read_head
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.llama.tensors import find_tensor
from spec_cpu.sampling.logits import Logits
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

widen = load_bench("widen")

SAMPLES = 3_000
PATHS = 4
NEARLY = 0.05  # of log probabilities

start = partial(engine.start, k=3)


def opened(
    target: Path,
    head: Path,
    n_ctx: int = 256,
    draft_ctx: int | None = None,
    shape: Shape = "chain",
) -> AbstractContextManager[tuple[KVSequence, EagleSource]]:
    paths = PATHS if shape == "tree" else 1

    def drafter() -> EagleSource:
        model = Model(head)
        context = Context(
            model, n_ctx=draft_ctx or n_ctx, n_seq=paths, threads=1, hidden=True, flash=False
        )
        embedding = find_tensor(target, "token_embd.weight")
        return EagleSource(read_head(head), model, context, embedding, shape=shape)

    return followed(target, drafter, n_ctx=n_ctx, paths=paths)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "pipeline", "shape"),
    [
        ("block", "plain", "chain"),
        ("token", "plain", "chain"),
        ("block", "defaults", "chain"),
        ("block", "penalties", "chain"),
        ("token", "penalties", "chain"),
        ("block", "bias", "chain"),
        ("block", "cut short", "chain"),
        ("block", "plain", "tree"),
        ("block", "penalties", "tree"),
        ("block", "bias", "tree"),
    ],
)
def test_samples_follow_the_exact_distribution(
    models: Path, rule: str, pipeline: str, shape: Shape
) -> None:
    """Though the head has half of the tokens: outside of them q is 0."""
    target = tiny.write_llama(models / "e8.gguf", n_vocab=N_VOCAB, scale=1.5)
    head = tiny_head.write_head(models / "e8h.gguf", target, tokens=[7, 3, 4, 2], noise=0.4)
    params = {**PIPELINES, "bias": BIASED}.get(pipeline, PIPELINES["plain"])
    rng = np.random.default_rng(7)
    policy = CutShort(3) if pipeline == "cut short" else None
    found: Counter[tuple[int, ...]] = Counter()
    accepted = branched = 0
    with opened(target, head, shape=shape) as (sequence, drafter):
        for _ in range(SAMPLES):
            steps = start(
                sequence, drafter, PROMPT, params=params, rng=rng, rule=rule, policy=policy
            )
            first = next(steps)
            accepted += first.accepted > 0
            branched += first.depth < first.drafted
            pair = first.tokens if len(first.tokens) > 1 else first.tokens + next(steps).tokens
            found[tuple(pair[:2])] += 1
    assert SAMPLES / 20 < accepted < SAMPLES * 0.95
    assert bool(branched) <= (shape == "tree")
    assert branched or (shape, pipeline) != ("tree", "plain")
    assert_exact(found, target, params)


def warm(params: SamplingParams) -> Pipeline:
    """All that `params` do but to take the likeliest."""
    return Pipeline(replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0))


def next_row(sequence: KVSequence, tokens: list[int]) -> Logits:
    sequence.truncate(0)
    sequence.prefill(tokens[:-1])
    return sequence.score(tokens[-1:])[0].copy()


@pytest.mark.parametrize("noise", [0.0, 0.2, 2.0])
@pytest.mark.parametrize("k", [1, 4, 7])
@pytest.mark.parametrize("shape", get_args(Shape))
def test_greedy_text_is_that_of_plain_decoding(
    models: Path, noise: float, k: int, shape: Shape
) -> None:
    target = tiny.write_llama(models / "eg.gguf", n_vocab=32, scale=4)
    head = tiny_head.write_head(models / f"eg{noise}.gguf", target, noise=noise, feature=noise)
    params = replace(GREEDY, repeat_penalty=1.3)
    prompt = [tiny.BOS, 5, 9, 7]
    with opened(target, head, shape=shape) as (sequence, drafter):
        plain = list(start(sequence, None, prompt, params=params, k=0, max_tokens=100))
        fast = list(start(sequence, drafter, prompt, params=params, k=k, max_tokens=100))
        differ = [i for i, (a, b) in enumerate(zip(text(fast), text(plain), strict=True)) if a != b]
        if differ and shape == "tree":
            # Cells in another order round sums otherwise: what nearly ties may fall the other way.
            history = [*prompt, *text(plain)[: differ[0]]]
            p = warm(params).distribution(next_row(sequence, history), history)
            one, other = (np.log(p.prob(text(each)[differ[0]])) for each in (fast, plain))
            assert abs(one - other) < NEARLY
        else:
            assert not differ
    drafted, accepted = (sum(getattr(c, n) for c in fast) for n in ("drafted", "accepted"))
    wanted = 0.4 if shape == "chain" else 0.1
    assert (accepted > wanted * drafted) if noise == 0 else (accepted < drafted)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams()], ids=["greedy", "sampled"])
def test_a_head_that_knows_all_is_always_right(models: Path, params: SamplingParams) -> None:
    """A target whose layer adds nothing goes by its last token: the head can know what it does."""
    target = tiny.write_llama(models / "bigram-source.gguf", n_vocab=32, scale=3)
    blind = blinded(target, models / "bigram.gguf")
    head = tiny_head.write_head(models / "bigram-h.gguf", blind, quantization="F16")
    with opened(blind, head) as (sequence, drafter):
        done = list(start(sequence, drafter, [tiny.BOS, 5], params=params, max_tokens=120))
    assert sum(cycle.drafted for cycle in done) > 60
    assert all(cycle.accepted == cycle.drafted for cycle in done)
    assert all(overlap == pytest.approx(1, abs=0.02) for c in done for overlap in c.overlaps)


def blinded(source: Path, out: Path) -> Path:
    """A copy whose layer writes nothing to the hidden state."""
    import gguf

    data = bytearray(source.read_bytes())
    for tensor in gguf.GGUFReader(source).tensors:
        if tensor.name in {"blk.0.attn_output.weight", "blk.0.ffn_down.weight"}:
            data[tensor.data_offset : tensor.data_offset + tensor.n_bytes] = bytes(tensor.n_bytes)
    out.write_bytes(data)
    return out


@pytest.fixture(scope="module")
def pair(small_target: Path, models: Path) -> tuple[Path, Path]:
    # In F16: the rounding of features to 8 bits makes more of the rounding before it.
    head = models / "small-eagle.gguf"
    tiny_head.write_head(head, small_target, noise=0.2, feature=0.7, quantization="F16")
    return small_target, head


def first_logits(drafter: EagleSource) -> Rows:
    """The logits for the first drafted token, without drafting."""
    logits: Rows = drafter.logits(()).copy()
    return logits


def fresh_logits(pair: tuple[Path, Path], tokens: list[int], read: int) -> Rows:
    """Of a new head that is fed the true features of the last `read` rows of `tokens`."""
    with opened(*pair) as (sequence, drafter):
        rows = sequence.prefill_hidden(tokens[:-1], len(tokens))
        drafter.begin(tokens, features=rows[len(rows) - read :])
        return first_logits(drafter)


@settings(max_examples=25, deadline=None)
@given(
    prompt=st.lists(st.integers(3, 31), min_size=1, max_size=20),
    ks=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    turn=st.lists(st.integers(3, 31), max_size=5),
    kept=st.floats(0, 1),
    seed=st.integers(0, 9),
    shape=st.sampled_from(get_args(Shape)),
)
def test_the_cache_is_that_of_true_features(
    pair: tuple[Path, Path],
    prompt: list[int],
    ks: list[int],
    turn: list[int],
    kept: float,
    seed: int,
    shape: Shape,
) -> None:
    """After any cycles, and after another turn that takes back a part of them."""

    class Given(Pinned):
        def observe(self, outcome: Outcome) -> None:
            super().observe(outcome)
            self.most = next(wanted, 0)

    wanted = iter(ks)
    tokens = [tiny.BOS, *prompt]
    rng = np.random.default_rng(seed)
    with opened(*pair, shape=shape) as (sequence, drafter):
        steps = start(
            sequence,
            drafter,
            tokens,
            params=SamplingParams(),
            rng=rng,
            policy=Given(next(wanted, 0)),
            max_tokens=200,
        )
        for _ in ks:
            tokens = tokens + next(steps).tokens
        steps.close()
        after = first_logits(drafter)
        again = tokens[: 1 + round(kept * (len(tokens) - 1))] + turn
        start(sequence, drafter, again, params=GREEDY)
        if len(again) > 1:
            another = first_logits(drafter)
    np.testing.assert_allclose(after, fresh_logits(pair, tokens, len(tokens) - 1), atol=0.02)
    if len(again) > 1:
        np.testing.assert_allclose(another, fresh_logits(pair, again, len(again) - 1), atol=0.02)


def test_a_long_stretch_without_drafts_is_read_from_its_end(pair: tuple[Path, Path]) -> None:
    prompt = [tiny.BOS, *range(3, 12)]
    with opened(*pair, n_ctx=512) as (sequence, drafter):
        steps = start(sequence, drafter, prompt, params=SamplingParams(), k=0, max_tokens=150)
        tokens = prompt + text(list(steps))
        logits = first_logits(drafter)
        assert len(drafter.sequence) <= drafter.window
    fresh = fresh_logits(pair, tokens, len(drafter.sequence))
    np.testing.assert_allclose(logits, fresh, atol=0.05)  # features of single steps differ a bit


def test_a_long_prompt_is_read_from_its_end(pair: tuple[Path, Path]) -> None:
    prompt = [tiny.BOS, *(3 + i % 20 for i in range(200))]
    with opened(*pair, n_ctx=512) as (sequence, drafter):
        start(sequence, drafter, prompt, params=GREEDY)
        logits = first_logits(drafter)
        assert len(drafter.sequence) == drafter.window
    np.testing.assert_allclose(logits, fresh_logits(pair, prompt, drafter.window), atol=0.02)


def test_a_prompt_decoded_without_it_does_not_mislead_it(pair: tuple[Path, Path]) -> None:
    """Another text went through the target meanwhile, and the drafter did not see it."""
    seen, unseen = [tiny.BOS, 5, 6, 7, 8, 9], [tiny.BOS, 11, 12, 13, 14, 15, 16]
    with opened(*pair) as (sequence, drafter):
        list(start(sequence, drafter, seen, params=GREEDY))
        list(start(sequence, None, unseen, params=GREEDY, k=0))
        prompt = [*unseen, 17, 18]
        start(sequence, drafter, prompt, params=GREEDY)
        logits = first_logits(drafter)
    # The target had most of its rows, and evaluated them anew for their features.
    np.testing.assert_allclose(logits, fresh_logits(pair, prompt, len(prompt) - 1), atol=0.02)


def test_the_first_token_alone_has_no_feature(pair: tuple[Path, Path]) -> None:
    with opened(*pair) as (sequence, drafter):
        done = list(start(sequence, drafter, [tiny.BOS], params=GREEDY, max_tokens=20))
    assert done[0].drafted == 0
    assert done[1].drafted == 3


@pytest.mark.parametrize("moves", [True, False])
def test_a_small_context_slides(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    if not moves:
        monkeypatch.setattr(Context, "shift", lambda *_args, **_named: False)
    prompt = [tiny.BOS, *range(3, 12)]
    with opened(*pair, n_ctx=400, draft_ctx=32) as (sequence, drafter):
        plain = list(start(sequence, None, prompt, params=GREEDY, k=0, max_tokens=200))
        fast = list(start(sequence, drafter, prompt, params=GREEDY, max_tokens=200))
    assert text(fast) == text(plain)
    assert sum(cycle.drafted for cycle in fast) > 100


def test_nothing_is_drafted_where_all_its_tokens_are_forbidden(
    models: Path, pair: tuple[Path, Path]
) -> None:
    head = tiny_head.write_head(models / "few.gguf", pair[0], tokens=[5, 6])
    params = SamplingParams(logit_bias={5: -np.inf, 6: -np.inf})
    with opened(pair[0], head) as (sequence, drafter):
        done = list(start(sequence, drafter, [tiny.BOS, 9], params=params, max_tokens=20))
    assert all(cycle.drafted == 0 for cycle in done)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams()], ids=["greedy", "sampled"])
def test_a_damaged_head_is_named(
    tmp_path: Path, pair: tuple[Path, Path], params: SamplingParams
) -> None:
    bad = tiny.corrupt(pair[1], tmp_path / "bad.gguf", "tensor-data")
    with (
        opened(pair[0], bad) as (sequence, drafter),
        pytest.raises(ModelError, match=r"bad\.gguf.*not finite"),
    ):
        list(start(sequence, drafter, [tiny.BOS, 9], params=params))


@pytest.mark.parametrize("quantization", ["Q8_0", "Q4_0", "F16"])
def test_a_widened_target_keeps_its_head(tmp_path: Path, quantization: str) -> None:
    """Zeros beyond the head's width: the features are those of the narrow model."""
    target = tiny.write_llama(tmp_path / "t.gguf", n_vocab=32, n_embd=64, scale=3, dtype="F16")
    head = tiny_head.write_head(tmp_path / "h.gguf", target, quantization=quantization)
    wide = tmp_path / "wide.gguf"
    widen.widen(target, wide, heads=4, ff=128, type_name="F16")
    prompt = [tiny.BOS, 5, 9, 7, 11]
    rows: list[Rows] = []
    for path in (target, wide):
        with Model(path) as model, Context(model, n_ctx=64, threads=1, hidden=True) as context:
            rows.append(KVSequence(context).prefill_hidden(prompt, len(prompt)))
    assert rows[1].shape == (len(prompt), 128)
    assert not rows[1][:, 64:].any()
    np.testing.assert_allclose(rows[1][:, :64], rows[0], atol=0.01)
    with opened(wide, head) as (sequence, drafter):
        done = list(start(sequence, drafter, prompt, params=GREEDY, max_tokens=60))
    assert sum(c.accepted for c in done) > 0.4 * sum(c.drafted for c in done)


def test_a_head_is_written_for_its_target(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The trainer's way: features of the target in, a file out that `load` takes."""
    weights = tiny_head.eagle_weights(pair[0])
    with Model(pair[0]) as model:
        write_eagle(tmp_path / "new.gguf", weights, HeadTarget.of(model), acceptance=(0.6,))
    assert read_head(tmp_path / "new.gguf").label.acceptance == pytest.approx((0.6,))


def test_a_growing_trees_logits_are_those_of_single_steps(pair: tuple[Path, Path]) -> None:
    """Each node attends to its ancestors alone, and takes its parent's own hidden state."""
    prompt = [tiny.BOS, *range(3, 12)]
    fed, rows = TokenTree(), {}
    for tokens, parents in (([4, 7], [-1, -1]), ([9, 5, 8], [0, 0, 1]), ([6], [4])):
        for token, parent in zip(tokens, parents, strict=True):
            fed.append(token, None, 1.0, parent)
    with opened(*pair, shape="tree") as (sequence, drafter):
        start(sequence, drafter, prompt, params=GREEDY)
        drafter.logits(())
        passes = drafter.sequence
        features = {-1: passes.feature.copy()}
        for new in (range(2), range(2, 5), range(5, 6)):
            parents = [fed.parents[node] for node in new]
            before = np.stack([features[parent] for parent in parents])
            logits, after = passes.grow([fed.tokens[node] for node in new], parents, before)
            features.update(zip(new, after, strict=True))
            rows.update(zip(new, logits.copy(), strict=True))
        passes.fell()
    for node, row in rows.items():
        with opened(*pair) as (sequence, drafter):
            start(sequence, drafter, prompt, params=GREEDY)
            path = tuple(fed.tokens[step] for step in fed.path(node))
            alone = [drafter.logits(path[:n]).copy() for n in range(len(path) + 1)][-1]
        np.testing.assert_allclose(row, alone, atol=0.02)
