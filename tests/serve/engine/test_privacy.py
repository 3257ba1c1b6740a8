"""What one client says is not drafted for another: nobody could tell that somebody else was there.

Which tokens are drafted, and so how fast an answer comes, must not depend on what others wrote. How
often drafts come true in general is learnt of all answers, but for those with a seed, as here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from served import GREEDY, PATIENCE, Held, Told, ask, opened, request

from spec_cpu import SamplingParams
from spec_cpu.draft import load
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.errors import ContextError
from spec_cpu.serve.engine.answer import Answer
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.request import Delta, Event, Reading

SECRET = [tiny.BOS, 9, 21, 13, 27, 6, 18, 24, 11, 5, 29, 8]
MINE = [tiny.BOS, 4, 9, 21, 7, 9, 21]
Other = Callable[[BatchingEngine], Any]


@pytest.fixture(autouse=True)
def _recycles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a large target says is kept in a table."""
    monkeypatch.setattr(load, "RECYCLED_FROM", 0)


@pytest.fixture(scope="module")
def drafts(models: Path) -> dict[str, str]:
    """Drafts that say the same to the bit, however they came to a text."""
    small = tiny.write_llama(models / "private.gguf", n_vocab=32, scale=3, noise=0.3, dtype="Q4_0")
    return {"ngram": "ngram", "model": str(small), "both": f"ngram,{small}"}


def heard(engine: BatchingEngine, tokens: list[int], **how: Any) -> list[Delta]:
    """All that is told of an answer, but for the text."""
    how = {"max_tokens": 40, "alternatives": True, "seed": 5, **how}
    told = ask(engine, tokens, **how).wait()
    assert told.end.finish == "length"
    return [Delta((), delta.tokens, delta.drafted, delta.accepted) for delta in told.deltas]


def goes_away(engine: BatchingEngine, when: type[Event]) -> None:
    told = Held(when)
    ask(engine, SECRET * 4, told, max_tokens=40)
    assert told.holds.wait(PATIENCE)
    told.handle.cancel()
    told.let_go()
    assert told.end.finish == "interrupted"


def fails(engine: BatchingEngine) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def failing(*_: Any) -> int:
            raise ContextError("no more")

        patch.setattr(Answer, "take", failing)
        told = Told()
        engine.submit(request(SECRET), told)
        assert told.error


OTHERS: dict[str, Other] = {
    "something else": lambda engine: ask(engine, SECRET * 4, max_tokens=30).wait(),
    "much the same": lambda engine: ask(engine, MINE[:-1] + SECRET).wait(),
    "the beginning of mine": lambda engine: ask(engine, MINE[:-2], max_tokens=30).wait(),
    "the same": lambda engine: ask(
        engine, MINE, max_tokens=30, sampling=SamplingParams(temperature=3), seed=1
    ).wait(),
    "the same, in short": lambda engine: ask(
        engine, MINE, max_tokens=4, sampling=SamplingParams(temperature=3), seed=1
    ).wait(),
    "a reference": lambda engine: ask(engine, SECRET, references=[MINE * 3, SECRET]).wait(),
    "nothing while it is read": lambda engine: goes_away(engine, Reading),
    "nothing in the end": lambda engine: goes_away(engine, Delta),
    "what fails": fails,
    "much": lambda engine: [ask(engine, [tiny.BOS, *SECRET[i:], *MINE]).wait() for i in range(6)],
}


@pytest.mark.parametrize("said", OTHERS)
@pytest.mark.parametrize("draft", ["ngram", "model", "both"])
def test_an_answer_is_drafted_as_if_nobody_was_there_before(
    target: Path, drafts: dict[str, str], draft: str, said: str
) -> None:
    for how in ({}, {"sampling": SamplingParams(temperature=1)}):
        with opened(target, drafts[draft], slots=1) as engine:
            alone = heard(engine, MINE, **how)
        with opened(target, drafts[draft], slots=1) as engine:
            OTHERS[said](engine)
            assert heard(engine, MINE, **how) == alone
        assert sum(delta.drafted for delta in alone)


@pytest.mark.parametrize("draft", ["ngram", "model", "both"])
def test_an_answer_is_drafted_as_if_nobody_was_beside(
    target: Path, drafts: dict[str, str], draft: str
) -> None:
    with opened(target, drafts[draft], slots=2, ctx=256) as engine:
        alone = heard(engine, MINE)
    with opened(target, drafts[draft], slots=2, ctx=256) as engine:
        other = Held(Delta)
        ask(engine, MINE[:-1] + SECRET * 4, other, max_tokens=150, references=[MINE * 4])
        assert other.holds.wait(PATIENCE)
        mine = Told()
        engine.submit(request(MINE, max_tokens=40, alternatives=True, seed=5), mine)
        other.let_go()
        beside = [
            Delta((), delta.tokens, delta.drafted, delta.accepted) for delta in mine.wait().deltas
        ]
    assert beside == alone


def test_memory_that_is_shared_is_drafted_from(target: Path) -> None:
    """So the laws above can fail."""
    with opened(target, "ngram", slots=1, shared_memory=True) as engine:
        alone = heard(engine, MINE)
    with opened(target, "ngram", slots=1, shared_memory=True) as engine:
        ask(engine, SECRET * 4, max_tokens=30).wait()
        assert heard(engine, MINE) != alone


def test_a_conversation_that_goes_on_is_drafted_from(target: Path) -> None:
    """What the target said in it before is known, also what the text alone does not tell."""
    with opened(target, "ngram", slots=1) as engine:
        first = ask(engine, MINE, max_tokens=40)
        goes_on = [*MINE, *first.ids, 4, 9, 21, 30, 21]
        known = heard(engine, goes_on)
    with opened(target, "ngram", slots=1) as engine:
        assert heard(engine, goes_on) != known
        assert heard(engine, goes_on) == heard(engine, goes_on)


def test_a_reference_dies_with_its_request(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drafted from in that answer alone, and not at all where nothing is to be drafted."""
    made: list[Any] = []

    class Counted(NgramSource):
        def __init__(self, references: Any = ()) -> None:
            super().__init__(references)
            made.append(references)

    monkeypatch.setattr("spec_cpu.serve.engine.answer.NgramSource", Counted)
    told = ask_for(target, [])
    repeated = ask_for(target, [[*MINE, *told.ids]])
    assert repeated.ids == told.ids
    assert repeated.end.stats.accepted > told.end.stats.accepted
    assert made == [[[*MINE, *told.ids]]]
    made.clear()
    with opened(target, "none") as engine:
        assert ask(engine, MINE, references=[[4, 5]], sampling=GREEDY).end.stats.drafted == 0
    assert made == []


def ask_for(target: Path, references: list[list[int]]) -> Told:
    with opened(target, "ngram") as engine:
        return ask(engine, MINE, references=references, max_tokens=40).wait()
