"""Whose turn it is in a session: threads, and what was closed.

Threads meet at barriers and events, never after a time; one that fails hands its error on.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spec_cpu
from spec_cpu import SamplingParams, Session
from spec_cpu.errors import BusyError, ContextError, ModelError, SpecCpuError, UsageError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.turns import Turns

GREEDY = SamplingParams(temperature=0)
PATIENCE = 300.0  # seconds after which a thread counts as stuck, on however busy a machine


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def session(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    with spec_cpu.load(
        tiny_target, tiny_draft, threads=1, ctx=1024, k=2, sampling=GREEDY
    ) as session:
        yield session


def answer(session: Session, prompt: str = "hello", **how: Any) -> str:
    how = {"max_tokens": 20, "ignore_eos": True, **how}
    return "".join(step.text for step in session.generate(prompt, **how))


# Turns alone


def test_uses_never_overlap_and_none_comes_after_the_freeing(pool: ThreadPoolExecutor) -> None:
    """Law: whatever threads do, uses come one at a time, and freeing after the last of them."""
    log: list[str] = []
    turns = Turns(lambda: log.append("free"))
    start = threading.Barrier(4)

    def work(closes: bool) -> int:
        start.wait(PATIENCE)
        done = 0
        for i in range(300):
            if closes and i == 150:
                turns.close()
            try:
                with turns.use():
                    log.append("in")
                    log.append("out")
                    done += 1
            except BusyError:
                continue
            except UsageError:
                break
        return done

    results = [pool.submit(work, number == 0) for number in range(4)]
    done = sum(future.result(PATIENCE) for future in results)
    first = log.index("free")
    assert done
    assert log[:first] == ["in", "out"] * done
    assert set(log[first:]) == {"free"}


def test_closing_waits_for_the_use_that_is_under_way(pool: ThreadPoolExecutor) -> None:
    log: list[str] = []
    turns = Turns(lambda: log.append("free"))
    with turns.use():
        closing = pool.submit(turns.close)
        while not turns.closed:
            assert not closing.done()
        assert log == []
        log.append("out")
    closing.result(PATIENCE)
    assert log[:2] == ["out", "free"]
    with pytest.raises(UsageError, match="closed"), turns.use():
        pass


def test_closing_within_a_use_frees_at_its_end() -> None:
    log: list[str] = []
    turns = Turns(lambda: log.append("free"))
    with turns.use():
        turns.close()
        with pytest.raises(UsageError, match="closed"):
            turns.while_open(None)("reading", 1, 2)
        assert log == []
    assert log == ["free"]


def test_an_answer_of_a_thread_that_is_gone_keeps_nobody_out(pool: ThreadPoolExecutor) -> None:
    turns = Turns(lambda: None)
    thread = threading.Thread(target=turns.begin)
    thread.start()
    thread.join(PATIENCE)
    assert turns.begin() == 2


def test_the_steps_of_an_answer_may_go_on_in_another_thread(pool: ThreadPoolExecutor) -> None:
    turns = Turns(lambda: None)
    number = turns.begin()

    def step() -> None:
        with turns.use(number):
            pass

    pool.submit(step).result(PATIENCE)
    with pytest.raises(BusyError):
        turns.begin()
    with turns.ended(number) as latest:
        assert latest
    with turns.ended(number - 1) as latest:
        assert not latest
    assert turns.begin() == number + 1


# Sessions


class Passes:
    """Stops the first pass of a session's target in the middle of an answer until it may go on.

    Attributes:
        context: the target's, once it is in a pass. `fed`: tokens that it was given.
    """

    context: Context

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.fed = 0
        decode = Context.decode

        def held(context: Context, tokens: list[int], *args: Any, **how: Any) -> Any:
            if context.model is session.target:
                self.context = context
                self.fed += len(tokens)
                self.entered.set()
                assert self.go_on.wait(PATIENCE)
            return decode(context, tokens, *args, **how)

        monkeypatch.setattr(Context, "decode", held)


CALLS: dict[str, Callable[[Session], object]] = {
    "generate": lambda session: answer(session, "second"),
    "render": lambda session: session.render("second"),
    "calibrate": lambda session: session.calibrate(2),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_during_a_step_other_threads_are_told_that_it_is_busy(
    session: Session, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    alone = answer(session, "first")
    session.reset()
    passes = Passes(session, monkeypatch)
    first = pool.submit(answer, session, "first")
    assert passes.entered.wait(PATIENCE)
    with pytest.raises(BusyError, match="busy"):
        CALLS[call](session)
    passes.go_on.set()
    assert first.result(PATIENCE) == alone
    CALLS[call](session)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_between_steps_as_well(session: Session, pool: ThreadPoolExecutor, call: str) -> None:
    """Rule: who is refused does not depend on the moment."""
    steps = session.generate("first", max_tokens=20, ignore_eos=True)
    next(steps)
    with pytest.raises(BusyError):
        pool.submit(CALLS[call], session).result(PATIENCE)
    assert list(steps)
    pool.submit(CALLS[call], session).result(PATIENCE)


def test_of_two_threads_that_answer_at_once_each_has_its_answer_or_is_told(
    session: Session, pool: ThreadPoolExecutor
) -> None:
    alone = answer(session, raw=True)
    start = threading.Barrier(4)

    def run() -> str | None:
        start.wait(PATIENCE)
        try:
            return answer(session, raw=True)
        except BusyError:
            return None

    results = [pool.submit(run) for _ in range(4)]
    texts = [future.result(PATIENCE) for future in results]
    assert set(texts) <= {alone, None}
    assert alone in texts
    assert answer(session, raw=True) == alone


def test_sessions_answer_side_by_side(
    tiny_target: Path, tiny_draft: Path, pool: ThreadPoolExecutor
) -> None:
    start = threading.Barrier(3)

    def run() -> str:
        start.wait(PATIENCE)
        with spec_cpu.load(tiny_target, tiny_draft, threads=1, k=2, sampling=GREEDY) as session:
            return answer(session, raw=True, max_tokens=60)

    results = [pool.submit(run) for _ in range(3)]
    assert len({future.result(PATIENCE) for future in results}) == 1


def test_closing_while_another_thread_is_in_a_pass(
    session: Session, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: the pass comes to its end, its thread is told, and only then memory is freed."""
    passes = Passes(session, monkeypatch)
    steps = pool.submit(answer, session)
    assert passes.entered.wait(PATIENCE)
    closing = pool.submit(session.close)
    while not session.closed:
        assert not closing.done()
    assert passes.context.handle, "freed under a pass"
    passes.go_on.set()
    with pytest.raises(UsageError, match="closed"):
        steps.result(PATIENCE)
    closing.result(PATIENCE)
    with pytest.raises(ContextError, match="closed"):
        _ = passes.context.handle


def test_a_long_prompt_does_not_hold_up_closing(
    session: Session, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: closing waits for one pass over a part of the prompt, not for the whole of it."""
    passes = Passes(session, monkeypatch)
    steps = pool.submit(answer, session, "x" * 900)
    assert passes.entered.wait(PATIENCE)
    closing = pool.submit(session.close)
    while not session.closed:
        assert not closing.done()
    passes.go_on.set()
    closing.result(PATIENCE)
    with pytest.raises(UsageError, match="closed"):
        steps.result(PATIENCE)
    assert passes.fed == passes.context.n_batch


def test_many_threads_answer_and_one_closes(tiny_target: Path, pool: ThreadPoolExecutor) -> None:
    """Rule: whenever it is closed, threads have their text or one clear error."""
    for renders in range(5):  # before it is closed
        session = spec_cpu.load(tiny_target, "none", threads=1, ctx=256, sampling=GREEDY)
        start = threading.Barrier(4)
        workers = [pool.submit(_answer_until_it_is_closed, session, start) for _ in range(3)]
        start.wait(PATIENCE)
        for _ in range(renders):
            with suppress(BusyError):
                session.render("x")
        session.close()
        for worker in workers:
            with pytest.raises(UsageError, match="closed"):
                worker.result(PATIENCE)


def _answer_until_it_is_closed(session: Session, start: threading.Barrier) -> None:
    start.wait(PATIENCE)
    while True:
        with suppress(BusyError):
            answer(session, raw=True, max_tokens=3)


def test_an_answer_can_be_passed_from_thread_to_thread(
    session: Session, pool: ThreadPoolExecutor
) -> None:
    alone = answer(session, raw=True)
    steps = session.generate("hello", raw=True, max_tokens=20, ignore_eos=True)
    text = ""
    for _ in range(20):
        step = pool.submit(next, steps, None).result(PATIENCE)
        text += step.text if step else ""
    assert text == alone


def test_a_progress_callback_may_close_and_nothing_else(session: Session) -> None:
    calls: list[str] = []

    def callback(*_report: object) -> None:
        with pytest.raises(BusyError):
            answer(session, "second")
        with pytest.raises(BusyError):
            session.render("second")
        session.close()
        calls.append("closed")

    with pytest.raises(UsageError, match="closed"):
        answer(session, "x" * 900, progress=callback)
    assert calls == ["closed"], "it goes on until the next report at most"
    with pytest.raises(ModelError, match="closed"):
        _ = session.target.handle


@pytest.mark.slow
def test_measuring_breaks_an_answer_off(session: Session) -> None:
    steps = session.generate("hello", max_tokens=20, ignore_eos=True)
    next(steps)
    session.calibrate(2)
    with pytest.raises(UsageError, match="broken off"):
        next(steps)


# What was closed


def test_a_closed_session_says_so(tiny_target: Path, tiny_draft: Path) -> None:
    session = spec_cpu.load(tiny_target, tiny_draft, threads=1, k=2)
    steps = session.generate("hello", ignore_eos=True)
    next(steps)
    session.close()
    assert session.closed
    with pytest.raises(UsageError, match="this session was closed: load"):
        next(steps)
    for call in CALLS.values():
        with pytest.raises(UsageError, match="this session was closed: load"):
            call(session)
    for what in ("n_ctx", "threads", "kernels", "shape", "exact", "costs", "why_plain", "stats"):
        getattr(session, what)
    session.close()


MODEL: dict[str, Callable[[Model], object]] = {
    "piece": lambda model: model.vocab.piece(5),
    "text": lambda model: model.vocab.text(5),
    "texts": lambda model: model.vocab.texts,
    "end_tokens": lambda model: model.vocab.end_tokens,
    "tokenize": lambda model: model.vocab.tokenize("x"),
    "handle": lambda model: model.handle,
    "vocab_handle": lambda model: model.vocab_handle,
    "info": lambda model: model.info,
    "n_ctx_train": lambda model: model.n_ctx_train,
    "n_embd": lambda model: model.n_embd,
    "can_rollback": lambda model: model.can_rollback,
    "chat_template": lambda model: model.chat_template,
    "kv_bytes": lambda model: model.kv_bytes(10),
    "a new context": lambda model: Context(model, n_ctx=32, threads=1),
}


def test_a_closed_model_says_so_whatever_it_is_asked(tiny_target: Path) -> None:
    model = Model(tiny_target)
    model.close()
    for call in MODEL.values():
        with pytest.raises(ModelError, match=r"target.gguf was closed: load it again"):
            call(model)
    for name in dir(model):  # whatever else there is: known without the model, or the same error
        with suppress(ModelError):
            getattr(model, name)


CONTEXT: dict[str, Callable[[Context], object]] = {
    "handle": lambda context: context.handle,
    "decode": lambda context: context.decode([1], [0], [(0,)]),
    "decode_embeddings": lambda context: context.decode_embeddings(
        np.zeros((1, 32), np.float32), [0], [(0,)]
    ),
    "hidden_rows": lambda context: context.hidden_rows(1),
    "truncate": lambda context: context.truncate(0),
    "copy": lambda context: context.copy(0, 1, 0, 1),
    "save": lambda context: context.save(0, 0, 1),
    "restore": lambda context: context.restore((ctypes.c_uint8 * 1)(), 0, 0, 1),
    "shift": lambda context: context.shift(0, 1),
}


@pytest.mark.parametrize("closed", ["context", "model"])
def test_a_closed_context_says_so_and_closes_with_its_model(tiny_target: Path, closed: str) -> None:
    """Rule: nothing of llama.cpp's outlives what it points to, in whatever order it is closed."""
    with Model(tiny_target) as model, Context(model, n_ctx=64, threads=1, hidden=True) as context:
        context.decode([1], [0], [(0,)])
        (context if closed == "context" else model).close()
        for call in CONTEXT.values():
            with pytest.raises(SpecCpuError, match=r"target.gguf was closed"):
                call(context)
        for name in dir(context):
            with suppress(SpecCpuError):
                getattr(context, name)
