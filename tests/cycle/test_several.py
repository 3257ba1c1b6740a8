"""Two drafters beside each other: exactness through the engine, sessions, what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from engine import N_VOCAB, PIPELINES, PROMPT, assert_exact, opened, text, to_continue
from trees import FOLLOWS

import spec_cpu
from spec_cpu import SamplingParams, Session, defaults
from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import cycles
from spec_cpu.cycle.drafting import Decides, Drafting
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.policy import Policy
from spec_cpu.draft import load
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.draft.lookup.recycled import RecycledSource
from spec_cpu.draft.names import Drafts, read_drafts
from spec_cpu.errors import UsageError, VocabularyMismatchError
from spec_cpu.sampling.logits import NumpyRowOps

GREEDY = SamplingParams(temperature=0)
SAMPLES = 4_000
FLAT = Costs(
    passes=tuple(0.01 * (1 + 0.02 * n) for n in range(defaults.MAX_TREE_NODES + 1)),
    draft_step=0.0005,
    draft_catch_up=0.0,
    rebuild=0.0,
    row=0.0,
)


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which verification is nearly free."""
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "measure", lambda *_sequence, **_named: FLAT)


def answer(session: Session, prompt: str = "hello", **how: Any) -> str:
    how = {"max_tokens": 120, "ignore_eos": True, **how}
    return "".join(step.text for step in session.generate(prompt, **how))


def policy(k: int | None) -> Decides:
    if k is not None:
        return Pinned(k)
    nodes, deepest = defaults.MAX_TREE_NODES, defaults.MAX_AUTO_DRAFT_TOKENS
    return Policy(FLAT, most=nodes, deepest=deepest, passes=True, repeatable=True)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["plain", "penalties"])
@pytest.mark.parametrize("k", [3, None])
def test_samples_follow_the_exact_distribution(models: Path, pipeline: str, k: int | None) -> None:
    """Also while the records on which the choice depends are being written."""
    target = tiny.write_llama(models / "t8.gguf", n_vocab=N_VOCAB, scale=1.5)
    draft = tiny.write_llama(models / "d8.gguf", n_vocab=N_VOCAB, scale=1.5, noise=0.7)
    params, rng = PIPELINES[pipeline], np.random.default_rng(13)
    found: Counter[tuple[int, ...]] = Counter()
    used: Counter[str] = Counter()
    with opened(target, draft) as (sequence, model):
        recycled = RecycledSource(N_VOCAB, NumpyRowOps())
        sources = [NgramSource(FOLLOWS), recycled, model]
        drafting = Drafting(sources, policy(k))
        for i in range(SAMPLES):
            sequence.reuse(PROMPT[:-1])
            sequence.prefill(PROMPT[len(sequence) : -1])
            if i % 3:  # of 8 tokens a table soon knows all that there is
                recycled.forget()
            for source in sources:
                source.begin(PROMPT)
            done = []
            for cycle in cycles(to_continue(sequence, drafting, PROMPT, params=params, rng=rng)):
                done.append(cycle)
                used.update(cycle.parts.keys())
                if len(text(done)) >= 2:
                    break
            found[tuple(text(done)[:2])] += 1
    assert min(used["ngram"] + used["recycled"], used["model"]) > SAMPLES / 100
    assert_exact(found, target, params)


@pytest.mark.parametrize("k", [None, 4])
@pytest.mark.parametrize("order", ["ngram,{}", "{},ngram"])
def test_greedy_text_is_that_of_plain_decoding(
    tiny_target: Path, tiny_draft: Path, k: int | None, order: str
) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = [answer(plain, prompt) for prompt in ("hello", "hello again")]
    draft = order.format(tiny_draft)
    with spec_cpu.load(tiny_target, draft, threads=1, sampling=GREEDY, seed=1, k=k) as session:
        assert [drafter.name for drafter in session.sources] == ["ngram", "model"]
        assert [answer(session, prompt) for prompt in ("hello", "hello again")] == expected
        assert session.draft_model is not None
        assert session.total.accepted > 0


@pytest.mark.parametrize("k", [None, 6])
def test_each_drafts_where_it_is_better(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path, k: int | None
) -> None:
    """The look-up knows the first part of the answer and nothing of the second."""
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        steps = plain.generate("hello", max_tokens=300, ignore_eos=True)
        told = [token for step in steps for token in step.tokens]
    with spec_cpu.load(
        tiny_target, f"ngram,{tiny_target}", threads=1, sampling=GREEDY, seed=1, k=k
    ) as session:
        session.sources[0] = NgramSource([told[:150]])
        parts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        at = 0
        for step in session.generate("hello", max_tokens=300, ignore_eos=True):
            for name, part in step.cycle.parts.items():
                parts[at < 150][name] += part.accepted
            at += len(step.tokens)
        by = session.stats.by_source
    assert parts[True]["ngram"] > 50
    assert parts[False]["model"] > 75
    for one in by.values():
        assert one.accepted <= one.tried <= session.stats.tokens
        assert one.accepted <= one.drafted <= session.stats.drafted
        assert one.cycles <= session.stats.cycles
        assert one.tokens <= session.stats.tokens
    assert sum(one.accepted for one in by.values()) >= session.stats.accepted


def test_the_same_seed_gives_the_same_text(tiny_target: Path, tiny_draft: Path) -> None:
    texts = []
    for _ in range(2):
        with spec_cpu.load(tiny_target, f"ngram,{tiny_draft}", threads=1, seed=3) as session:
            texts.append([answer(session, "abc " * 30, raw=True) for _ in range(2)])
            assert session.stats.drafted
    assert texts[0] == texts[1]


def test_what_only_one_can_do_is_known_of_both(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, f"ngram,{tiny_draft}", threads=1) as session:
        assert session.most_drafted == defaults.MAX_TREE_NODES
        assert session.why_plain is None
        answer(session, k=0)
        assert session.stats.drafted == 0
        assert session.costs is None
        answer(session)
        assert session.costs is not None
        assert session.costs.draft_window == session.sources[1].window
        assert list(session.stats.by_source) == ["ngram", "model"]


def test_nothing_is_drafted_where_neither_pays(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steep = Costs([n * 2.0 - 1 for n in range(1, 26)], 0.5, 0.0, 0.0, 0.0)
    monkeypatch.setattr(measure, "measure", lambda *_sequence, **_named: steep)
    with spec_cpu.load(tiny_target, f"ngram,{tiny_draft}", threads=1) as session:
        answer(session)
        assert session.stats.drafted == 0
        assert session.why_plain
        assert "no draft pays" in session.why_plain


def test_a_model_that_cannot_draft_leaves_the_look_up_alone(tmp_path: Path) -> None:
    target = tiny.write_llama(tmp_path / "t.gguf", n_vocab=320)
    mamba = tiny.write_mamba(tmp_path / "m.gguf", n_vocab=320)
    other = tiny.write_llama(tmp_path / "o.gguf", tokens=[*tiny.vocabulary(319), "other"])
    for draft, reason in ((mamba, "recurrent"), (other, "different vocabularies")):
        with spec_cpu.load(target, f"ngram,{draft}", threads=1, seed=1) as session:
            assert [drafter.name for drafter in session.sources] == ["ngram"]
            (notice,) = session.notices
            assert reason in notice
            assert notice.endswith(": guessing from the text itself")
            assert answer(session)
    with pytest.raises(VocabularyMismatchError):
        spec_cpu.load(target, str(other))
    with spec_cpu.load(mamba, f"ngram,{mamba}", threads=1) as session:
        assert session.sources == []
        assert answer(session, max_tokens=5)


def test_of_a_large_target_what_it_says_is_recycled(
    tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "RECYCLED_FROM", 0)
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = answer(plain)
    with spec_cpu.load(tiny_target, "ngram", threads=1, sampling=GREEDY, seed=1) as session:
        assert [drafter.name for drafter in session.sources] == ["ngram", "recycled"]
        assert answer(session) == expected
        assert session.stats.by_source["recycled"].drafted


def test_texts_to_look_things_up_in_go_with_a_model_beside(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path
) -> None:
    file = tmp_path / "reference.txt"
    file.write_text("hello " * 40)
    with spec_cpu.load(
        tiny_target, f"{tiny_draft},ngram", threads=1, seed=1, lookup=[file]
    ) as session:
        assert answer(session)


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ("ngram,ngram", "names ngram 2 times"),
        ("ngram,a.gguf,ngram", "names ngram 2 times"),
        ("a.gguf,b.gguf", "one draft model at a time, not a.gguf and b.gguf"),
        ("a.gguf,ngram,b.gguf", "one draft model at a time"),
        (",", "empty name"),
        ("ngram,", "empty name"),
        ("", "empty name"),
    ],
)
def test_what_is_no_list_of_drafts_is_refused(tiny_target: Path, draft: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec_cpu.load(tiny_target, draft)


def test_a_name_with_a_comma_is_a_file_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a,b.gguf").write_text("")
    assert read_drafts("a,b.gguf") == Drafts("a,b.gguf")
    assert read_drafts("ngram,a,b.gguf") == Drafts("a,b.gguf", ngram=True)
    assert read_drafts("a,b.gguf, ngram") == Drafts("a,b.gguf", ngram=True)
    assert read_drafts(Path("c,d.gguf")) == Drafts(Path("c,d.gguf"))
    assert read_drafts("ngram") == Drafts(ngram=True)
    assert read_drafts(None) == Drafts()
    Path("ngram,x").write_text("")
    assert read_drafts("ngram,x") == Drafts("ngram,x")


def test_answers_add_up_by_drafter() -> None:
    total = Stats()
    for tokens in (3, 4):
        other = Stats(by_source={"ngram": SourceStats(1, tokens, 5, tokens - 1, tokens)})
        total.merge(other)
    total.merge(Stats(by_source={"model": SourceStats()}))
    assert total.by_source["ngram"] == SourceStats(2, 7, 10, 5, 7)
    assert total.by_source["ngram"].alpha == 5 / 7
    assert total.by_source["ngram"].tokens_per_cycle == 3.5
    assert total.by_source["model"].alpha is None


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.0)])
def test_a_token_that_the_draft_lacks_may_be_looked_up_and_drafted_from(
    tmp_path: Path, shape: str, sampling: SamplingParams
) -> None:
    """The target's text is full of tokens that stand behind all of the draft's."""
    target = tiny.write_llama(tmp_path / "t.gguf", n_vocab=340)
    draft = tiny.write_llama(tmp_path / "d.gguf", n_vocab=320)
    often = replace(sampling, logit_bias=dict.fromkeys(range(322, 326), 20.0))
    with spec_cpu.load(
        target, f"ngram,{draft}", k=6, shape=shape, sampling=often, seed=1, threads=1
    ) as session:
        session.answer("hello", raw=True, max_tokens=60, ignore_eos=True)
        assert session.stats.tokens == 60
        assert session.stats.by_source["ngram"].accepted > 0
