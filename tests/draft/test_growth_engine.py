"""Trees that a draft model grows, through the real engine, on tiny random models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tiny
from engine import FAMILIES, N_VOCAB, PIPELINES, PROMPT, assert_exact, fresh_logits, text
from trees import (
    TOLERANCE,
    assert_no_cell_is_lost,
    one_by_one,
    random_path,
    random_tree,
    sequence_of,
    start,
)

import spec_cpu
from spec_cpu import SamplingParams, defaults
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.calibration import Open
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.draft.base import WIDTH
from spec_cpu.draft.passes.model import ModelSource
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.errors import ContextError, UsageError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence

SAMPLES = 4_000
GREEDY = SamplingParams(temperature=0)
PATHS = defaults.TREE_PATHS


@contextmanager
def opened(
    target: Path, draft: Path, *, paths: int = PATHS, draft_ctx: int = 256, n_ctx: int = 256
) -> Iterator[tuple[KVSequence, ModelSource]]:
    """A target and a draft that grows trees of up to `paths` paths."""
    with Model(target) as model, Context(model, n_ctx=n_ctx, n_seq=PATHS, threads=1) as context:
        small = Model(draft)
        drafter = ModelSource(
            small,
            Context(small, n_ctx=draft_ctx, n_seq=paths, max_outputs=WIDTH, threads=1),
            n_vocab=model.vocab.n,
            shape="tree",
        )
        try:
            yield KVSequence(context, branches=range(1, PATHS)), drafter
        finally:
            drafter.close()


class Now(Pinned):
    """Drafts in some cycles and not in others, and now and then stops a tree early."""

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self._rng = np.random.default_rng(1)

    def worth_pass(self, chances: Sequence[float], layer: Sequence[Open], layers: int) -> int:
        return int(self._rng.integers(0, len(layer) + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "paths"), [("plain", PATHS), ("plain", 1), ("penalties", PATHS), ("defaults", 3)]
)
def test_samples_follow_the_exact_distribution(models: Path, pipeline: str, paths: int) -> None:
    target = tiny.write_llama(models / "t8grow.gguf", n_vocab=N_VOCAB, scale=1.5)
    draft = tiny.write_llama(models / "d8grow.gguf", n_vocab=N_VOCAB, scale=1.5, noise=0.7)
    params, rng = PIPELINES[pipeline], np.random.default_rng(5)
    found: Counter[tuple[int, ...]] = Counter()
    accepted = branched = 0
    with opened(target, draft, paths=paths) as (sequence, drafter):
        for _ in range(SAMPLES):
            done = start(
                sequence, drafter, PROMPT, params=params, rng=rng, max_tokens=8, k=4, pause=2
            )
            found[tuple(text(done)[:2])] += 1
            accepted += done[0].accepted > 0
            branched += done[0].depth < done[0].drafted
    assert SAMPLES / 20 < accepted < SAMPLES * 0.98
    assert branched, "beside what it can feed, a draft with few paths proposes siblings"
    assert_exact(found, target, params)


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("draft_ctx", [64, 512])
def test_greedy_text_is_that_of_plain_decoding(models: Path, noise: float, draft_ctx: int) -> None:
    """With penalties, which a node's own ancestors are part of; also from a window that slides."""
    target = tiny.write_llama(models / "g.gguf", n_vocab=32, n_layer=2, scale=4, n_ctx=512)
    draft = tiny.write_llama(
        models / f"g{noise}.gguf", n_vocab=32, n_layer=2, scale=4, noise=noise, n_ctx=512
    )
    rng, params = np.random.default_rng(0), SamplingParams(temperature=0, repeat_penalty=1.3)
    prompt = [tiny.BOS, 5, 9, 7]
    with opened(target, draft, n_ctx=512, draft_ctx=draft_ctx) as (sequence, drafter):
        plain = start(sequence, None, prompt, params=params, rng=rng, max_tokens=120)
        for policy in (Pinned(7), Now(9)):
            fast = start(
                sequence, drafter, prompt, params=params, rng=rng, max_tokens=120, policy=policy
            )
            assert text(fast) == text(plain)
            assert sum(cycle.accepted for cycle in fast) > (9 if noise < 1 else 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_drafts_cache_is_in_step_after_many_cycles(models: Path, family: str) -> None:
    path = FAMILIES[family](models / f"grow-{family}.gguf")
    draft = tiny.write_llama(models / "growbad.gguf", seed=3, n_vocab=32, scale=2)
    rng, prompt = np.random.default_rng(0), [tiny.BOS, 5, 6]
    with opened(draft, path, n_ctx=512) as (sequence, drafter):
        done = []
        while sum(cycle.drafted for cycle in done) < 1500:
            done += start(
                sequence,
                drafter,
                prompt,
                params=SamplingParams(),
                rng=rng,
                max_tokens=200,
                policy=Now(8),
            )
        assert sum(cycle.depth < cycle.drafted for cycle in done) > 100
        tokens = list(drafter.sequence.tokens)
        assert sequence.tokens[: len(tokens)] == tokens
        used = drafter.sequence.score([7]).copy()
    np.testing.assert_allclose(
        used, fresh_logits(path, [*tokens, 7]), rtol=0, atol=TOLERANCE[family]
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_nodes_logits_are_those_of_single_steps_if_a_tree_grows(
    models: Path, family: str
) -> None:
    """In passes of random sizes, which a parent and its child may share."""
    path = FAMILIES[family](models / f"pass-{family}.gguf")
    rng = np.random.default_rng(4)
    with sequence_of(path) as sequence:
        sequence.prefill([tiny.BOS, *(3 + i * 7 % 29 for i in range(30))])
        for _ in range(8):
            tree, root = random_tree(rng), int(rng.integers(3, 32))
            before = list(sequence.tokens)
            rows = _grown(sequence, root, tree, rng)
            single = one_by_one(path, before, tree, root)
            np.testing.assert_allclose(rows, single, rtol=0, atol=TOLERANCE[family])
            sequence.keep(random_path(rng, tree))


def _grown(
    sequence: KVSequence, root: int, tree: TokenTree, rng: np.random.Generator
) -> np.ndarray:
    first = int(rng.integers(0, len(tree) + 1))
    rows = [sequence.score_tree(root, tree.tokens[:first], tree.parents[:first]).copy()]
    while first < len(tree):
        end = int(rng.integers(first + 1, len(tree) + 1))
        rows.append(sequence.grow(tree.tokens[first:end], tree.parents[first:end]).copy())
        first = end
    return np.concatenate(rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_after_1000_grown_trees_no_stale_cell_is_left(models: Path, family: str) -> None:
    path = FAMILIES[family](models / f"growstale-{family}.gguf")
    rng = np.random.default_rng(6)
    with sequence_of(path, 256) as sequence:
        tokens = [tiny.BOS, 5]
        sequence.prefill(tokens)
        for _ in range(1000):
            if len(sequence) > 230 or rng.random() < 0.05:
                sequence.truncate(int(rng.integers(1, len(sequence))))
                tokens = list(sequence.tokens)
            tree, root = random_tree(rng), int(rng.integers(3, 32))
            _grown(sequence, root, tree, rng)
            if rng.random() < 0.05:  # broken off before it was known what stays
                sequence.reuse(tokens)
                continue
            kept = random_path(rng, tree)
            sequence.keep(kept)
            tokens += [root, *(tree.tokens[node] for node in kept)]
            assert sequence.tokens == tokens
        assert_no_cell_is_lost(path, sequence, rng, TOLERANCE[family])


def test_more_paths_than_there_are_are_refused_while_growing(models: Path) -> None:
    with sequence_of(FAMILIES["llama"](models / "growfit.gguf"), paths=2) as sequence:
        sequence.prefill([tiny.BOS, 5])
        sequence.score_tree(6, [], [])
        sequence.grow([4, 5], [ROOT, ROOT])
        with pytest.raises(ContextError, match="3 paths, but there are 2"):
            sequence.grow([6], [ROOT])
        sequence.grow([7, 8], [1, 2])
        sequence.keep([1, 2, 3])
        assert sequence.tokens == [tiny.BOS, 5, 6, 5, 7, 8]


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which verification and drafting are nearly free."""
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    passes = tuple(0.01 * (1 + 0.02 * n) for n in range(defaults.MAX_TREE_NODES + 1))
    costs = Costs(passes, 0.0002, 0.0, 0.0, 0.0)
    monkeypatch.setattr(measure, "measure", lambda *_, **__: costs)


@pytest.mark.usefixtures("flat")
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("k", [None, 6])
def test_sessions_draft_the_shape_that_is_asked_for(
    tiny_target: Path, tiny_draft: Path, temperature: float, k: int | None
) -> None:
    sampling = SamplingParams(temperature=temperature)
    branched = {}
    for shape in ("auto", "chain", "tree"):
        with spec_cpu.load(
            tiny_target, tiny_draft, threads=1, sampling=sampling, seed=1, k=k, shape=shape
        ) as session:
            list(session.generate("hello", max_tokens=150, ignore_eos=True))
            branched[shape] = session.stats.branched
            assert session.stats.accepted > 20
            assert (session.costs is None) == (k is not None), "costs are for choosing k"
            automatic = "tree" if temperature == 0 else "chain"
            assert session.shape == (automatic if shape == "auto" else shape)
    assert branched["chain"] == 0
    assert branched["tree"] > 10
    assert bool(branched["auto"]) == (temperature == 0)


@pytest.mark.usefixtures("flat")
def test_turns_and_seeds_are_as_good_as_with_chains(tiny_target: Path, tiny_draft: Path) -> None:
    """Greedy text is that of plain decoding over two turns; the same seed gives the same text."""
    told = []
    for draft in ("none", tiny_draft):
        with spec_cpu.load(tiny_target, draft, threads=1, sampling=GREEDY, seed=1) as session:
            told.append([session.answer(turn, max_tokens=80) for turn in ("hello", "and then")])
    assert told[0] == told[1]
    drawn = []
    for _ in range(2):
        with spec_cpu.load(tiny_target, tiny_draft, threads=1, seed=4, shape="tree") as session:
            drawn.append([step.tokens for step in session.generate("hello", max_tokens=100)])
    assert drawn[0] == drawn[1]


def test_a_shape_that_is_none_is_refused(tiny_target: Path) -> None:
    with pytest.raises(UsageError, match="`shape` must be one of auto, chain, tree, not star"):
        spec_cpu.load(tiny_target, shape="star")


def test_the_shape_says_nothing_of_lookups(tiny_target: Path) -> None:
    with spec_cpu.load(tiny_target, "ngram", threads=1, shape="tree", k=4) as session:
        list(session.generate("hello hello hello", max_tokens=10))
        assert session.shape == "tree"
        assert not any("shape" in notice or "tree" in notice for notice in session.notices)
