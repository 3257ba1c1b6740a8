"""A fault of one request ends that request; the engine and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import GREEDY, TEXT, Told, ask, holding, opened, plain, request

from spec_cpu import SamplingParams
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.errors import ContextError, SpecCpuError, UsageError
from spec_cpu.llama.context import Context
from spec_cpu.serve.engine.answer import Answer
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.request import Delta, Event, Reading, Request
from spec_cpu.serve.engine.slots import Slots

OTHER = request(TEXT[::-1], max_tokens=40)


class UnforeseenError(Exception):
    """Nobody expects it."""


@pytest.fixture(params=["none", "ngram", "model", "eagle"])
def engine(request: pytest.FixtureRequest, files: dict[str, Path]) -> Iterator[BatchingEngine]:
    with opened(files["target"], files.get(request.param, request.param)) as engine:
        yield engine


@pytest.fixture
def expected(target: Path) -> list[int]:
    return plain(target, [OTHER])[0]


def beside(engine: BatchingEngine, one: Request, told: Told | None = None) -> tuple[Told, Told]:
    """`one` and another answer, which are taken up at one time, up to their ends."""
    told, other = told or Told(), Told()
    with holding(engine, max_tokens=1) as held:
        told.handle = engine.submit(one, told)
        engine.submit(OTHER, other)
    for each in (held, told, other):
        each.wait()
    return told, other


class Deaf(Told):
    """Cannot take events of a kind."""

    def __init__(self, kind: type[Event]) -> None:
        super().__init__()
        self._kind = kind

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, self._kind):
            raise UnforeseenError("deaf")


@pytest.mark.parametrize("kind", [Reading, Delta, object])
def test_who_cannot_take_an_event_is_not_answered_any_further(
    engine: BatchingEngine, expected: list[int], kind: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    told, other = beside(engine, request(TEXT, max_tokens=40), Deaf(kind))
    assert told.end.finish == "interrupted"
    assert len(told.deltas) < 2
    assert other.ids == expected
    assert ask(engine, TEXT).wait().ids == plain(engine.model.path, [request(TEXT)])[0]
    assert [record.levelno for record in caplog.records if "listens" in record.message]


@pytest.mark.parametrize("step", ["begin", "read", "take"])
def test_a_fault_in_one_answer_fails_that_one(
    engine: BatchingEngine,
    expected: list[int],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    works = getattr(Answer, step)

    def fails(self: Answer, *args: Any) -> Any:
        if self.request.seed == 13:
            raise UnforeseenError("a mistake of ours")
        return works(self, *args)

    monkeypatch.setattr(Answer, step, fails)
    told, other = beside(engine, request(TEXT, seed=13))
    assert isinstance(told.error, SpecCpuError)
    assert "a mistake of ours" in str(told.error)
    assert other.ids == expected
    assert ask(engine, TEXT).wait().ids == plain(engine.model.path, [request(TEXT)])[0]
    assert [record.exc_info for record in caplog.records if record.levelno == logging.ERROR]


def test_a_prompt_for_which_no_room_can_be_made_fails(
    engine: BatchingEngine, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = Slots.take

    def fails(self: Slots, prompt: Any) -> Any:
        if len(prompt) == 5:
            raise MemoryError("none left")
        return works(self, prompt)

    monkeypatch.setattr(Slots, "take", fails)
    told, other = beside(engine, request(TEXT[:5]))
    assert "none left" in str(told.error)
    assert other.ids == expected
    assert engine.state.waiting == 0


def test_a_fault_of_a_source_fails_its_answer(
    target: Path, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = NgramSource.begin

    def fails(self: NgramSource, prompt: Any, *args: Any, **how: Any) -> None:
        if len(prompt) == len(TEXT) - 1:
            raise UnforeseenError("a mistake of ours")
        begins(self, prompt, *args, **how)

    with opened(target, "ngram") as engine:
        monkeypatch.setattr(NgramSource, "begin", fails)
        told, other = beside(engine, request(TEXT[:-1]))
        assert "a mistake of ours" in str(told.error)
        assert other.ids == expected


def test_a_pass_that_fails_ends_those_that_share_it(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whatever their caches held is not taken for known."""
    works = Context.decode
    failing = [False]

    def fails(self: Context, tokens: Any, *args: Any, outputs: Any = None) -> Any:
        if failing[0] and self.parks and outputs is None:
            raise ContextError("llama.cpp failed to decode")
        return works(self, tokens, *args, outputs=outputs)

    monkeypatch.setattr(Context, "decode", fails)
    told, others = Told(), [Told(), Told()]
    with holding(engine, Delta, max_tokens=40) as held:
        failing[0] = True
        for one in others:
            engine.submit(OTHER, one)
    for one in (held, *others):
        assert "failed to decode" in str(one.error)
    failing[0] = False
    engine.submit(OTHER, told)
    assert told.ids == plain(engine.model.path, [OTHER])[0]
    assert told.end.reused_tokens == 0


def test_logits_that_are_not_finite_end_the_answers_that_share_the_pass(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = Context.decode
    broken = [False]

    def breaks(self: Context, *args: Any, outputs: Any = None) -> Any:
        rows = works(self, *args, outputs=outputs)
        if broken[0] and self.parks and len(rows):
            return np.full_like(rows, np.nan)
        return rows

    monkeypatch.setattr(Context, "decode", breaks)
    with holding(engine, Delta, max_tokens=40) as held:
        broken[0] = True
    assert "finite" in str(held.error) or "number" in str(held.error)
    broken[0] = False
    assert ask(engine, TEXT).wait().ids == plain(engine.model.path, [request(TEXT)])[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tokens": []}, "no tokens"),
        ({"tokens": [1, 32]}, "token 32 is not in the vocabulary of 32"),
        ({"tokens": [-1]}, "token -1 is not"),
        ({"references": [[4, 5], [999]]}, "token 999 is not"),
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, not 0"),
        ({"seed": -1}, "`seed` must be 0 or more"),
        ({"rule": "guess"}, "`rule` must be one of"),
        ({"logprobs": -1}, "logprobs must be from 0 to 32"),
        ({"logprobs": 33}, "logprobs must be from 0 to 32"),
        ({"sampling": SamplingParams(logit_bias={32: 1.0})}, "32"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    engine: BatchingEngine, wrong: dict[str, Any], said: str
) -> None:
    told = Told()
    with pytest.raises(UsageError, match=said):
        engine.submit(replace(request(TEXT), **wrong), told)
    assert told.events == []
    assert engine.state.waiting == engine.state.active == 0


@pytest.mark.parametrize("length", [127, 128, 129, 5000])
def test_a_prompt_that_fills_the_context_is_refused(engine: BatchingEngine, length: int) -> None:
    """With a token less it is answered, as far as there is room."""
    tokens = (TEXT * 200)[:length]
    if length < 128:
        told = ask(engine, tokens, max_tokens=None).wait()
        assert told.end.finish == "context"
        assert len(told.ids) == 1
        return
    with pytest.raises(ContextError, match=r"128.*shorten it, or raise `ctx`"):
        ask(engine, tokens)


def test_embeddings_of_nothing_of_too_much_and_of_what_is_no_token_are_refused(
    engine: BatchingEngine,
) -> None:
    with pytest.raises(UsageError, match="no tokens"):
        engine.embed([])
    with pytest.raises(ContextError, match="129 tokens, but a context holds 128"):
        engine.embed([4] * 129)
    with pytest.raises(UsageError, match="token 32 is not"):
        engine.embed([4, 32])
    assert np.isfinite(engine.embed([4] * 128)).all()


def test_an_embedding_that_fails_says_so_and_the_next_one_is_right(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = engine.embed(TEXT * 4)
    works = Context.hidden_rows
    with monkeypatch.context() as patch:
        patch.setattr(Context, "hidden_rows", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.embed(TEXT)
    assert Context.hidden_rows is works
    np.testing.assert_array_equal(engine.embed(TEXT * 4), expected)
    assert ask(engine, TEXT, sampling=GREEDY).end.finish == "length"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"k": 64, "slots": 8}, "`k` must be at most 63 with 8 `slots`, not 64"),
        ({"slots": 0}, "`slots` must be from 1 to"),
        ({"slots": 1000}, "`slots` must be from 1 to"),
    ],
)
def test_an_engine_that_makes_no_sense_is_refused(
    target: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said), opened(target, **wrong):
        pass
