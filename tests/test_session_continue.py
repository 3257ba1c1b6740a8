"""Going on with an answer that was cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_talk import write_talker

import spec_cpu
from spec_cpu import Message, SamplingParams, Session
from spec_cpu.errors import ContextError, UsageError

TOKENS = 48


@pytest.fixture(scope="module")
def session(models: Path) -> Iterator[Session]:
    """Greedy, on a vocabulary of bytes: characters come in parts."""
    target = tiny.write_llama(models / "bytes.gguf", n_vocab=320, n_ctx=2048, scale=3)
    draft = tiny.write_llama(
        models / "bytes-draft.gguf", n_vocab=320, n_ctx=2048, scale=3, noise=0.15
    )
    sampling = SamplingParams(temperature=0)
    with spec_cpu.load(target, draft, threads=1, ctx=256, k=3, sampling=sampling) as session:
        yield session


def ask(session: Session, prompt: str | None, n: int, **how: Any) -> str:
    return session.answer(prompt, max_tokens=n, ignore_eos=True, **how)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    question=st.text(min_size=1).filter(str.strip),
    parts=st.lists(st.integers(1, TOKENS - 1), min_size=1, max_size=4),
)
def test_an_answer_in_parts_is_the_whole_answer(
    session: Session, question: str, parts: list[int]
) -> None:
    """Law: greedily, wherever it is cut, and however often."""
    session.reset()
    ask(session, question[:20] + "x", TOKENS)
    whole = session.messages
    session.reset()
    ask(session, question[:20] + "x", parts[0])
    said = parts[0]
    for part in parts[1:]:
        if said + part < TOKENS:
            ask(session, None, part)
            said += part
    ask(session, None, TOKENS - said)
    assert session.messages == whole
    assert session.stats.reused_tokens == session.stats.prompt_tokens - 1, "nothing is read again"


def test_an_answer_that_was_broken_off_goes_on(session: Session) -> None:
    session.reset()
    ask(session, "hello", TOKENS)
    whole = session.messages
    session.reset()
    steps = session.generate("hello", max_tokens=TOKENS, ignore_eos=True)
    said = len(next(steps).tokens) + len(next(steps).tokens)
    steps.close()
    assert session.finish == "interrupted"
    ask(session, None, TOKENS - said)
    assert session.messages == whole


def test_what_comes_from_elsewhere_goes_on_from_its_text(session: Session) -> None:
    session.reset()
    session.messages = [
        Message(role="user", content="hello"),
        Message(role="assistant", content="well"),
    ]
    rest = ask(session, None, 8)
    assert session.messages[-1]["content"] == "well" + rest
    assert len(session.messages) == 2


def test_a_stop_string_may_lie_across_the_cut(models: Path) -> None:
    target = write_talker(models / "across.gguf")
    greedy = SamplingParams(temperature=0)
    with spec_cpu.load(target, "none", threads=1, sampling=greedy) as session:
        whole = ask(session, "hello", 30)
        stop = whole[9:12]
        at = whole.index(stop)
        session.reset()
        assert ask(session, "hello", at + 2, stop=stop) == whole[: at + 2]
        ask(session, None, 20, stop=stop)
        assert session.finish == "stop"
        assert session.messages[-1]["content"] == whole[:at]
        with pytest.raises(UsageError, match="came to its end"):
            ask(session, None, 20, stop=stop)
        assert session.messages[-1]["content"] == whole[:at]


def test_without_an_answer_there_is_nothing_to_go_on_with(session: Session) -> None:
    session.reset()
    with pytest.raises(UsageError, match="no answer to go on with"):
        session.answer(None)
    ask(session, "hello", 4)
    with pytest.raises(UsageError, match="`raw`"):
        session.answer(None, raw=True)


def test_a_full_context_is_said_and_room_for_more_can_be_made(session: Session) -> None:
    session.reset()
    ask(session, "hello", 60)
    ask(session, "and then?", 500)
    assert session.finish == "context"
    with pytest.raises(ContextError):
        ask(session, None, 4)
    before = session.messages[-1]["content"]
    del session.messages[:2]
    assert ask(session, None, 4)
    assert session.messages[-1]["content"].startswith(before[:-1])
    assert len(session.messages) == 2


def test_an_answer_that_ended_by_itself_is_not_gone_on_with(models: Path) -> None:
    target = write_talker(models / "ending.gguf")
    bias = SamplingParams(temperature=0, logit_bias={100: 50.0})  # the end, at once or later
    with spec_cpu.load(target, "none", threads=1) as session:
        session.answer("hello", max_tokens=3)
        session.answer(None, max_tokens=5, sampling=bias)
        assert session.finish == "stop"
        with pytest.raises(UsageError, match="came to its end"):
            session.answer(None)


def test_what_was_taken_back_leaves_the_cache_as_it_was(session: Session) -> None:
    """Law: after an undo a question is read, and answered, as if the last was never asked."""
    session.reset()
    ask(session, "hello", 10)
    ask(session, "how are you?", 10)
    expected, prompt = session.messages[:], session.stats.prompt_tokens
    del session.messages[2:]
    ask(session, "something else altogether", 10)
    del session.messages[2:]
    ask(session, "how are you?", 10)
    assert session.messages == expected
    assert session.stats.prompt_tokens == prompt
    assert session.stats.reused_tokens > prompt / 2
