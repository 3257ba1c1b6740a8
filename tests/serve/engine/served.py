"""Requests to an engine from tests: what is told of each, and ways to hold the engine's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from typing import Any

import numpy as np
import tiny
from engine import start

from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.engine import Handle
from spec_cpu.serve.engine.loading import load_engine
from spec_cpu.serve.engine.request import Delta, Ended, Event, Failed, Reading, Request, Token

PATIENCE = 300.0  # seconds after which a thread counts as stuck, on however busy a machine
GREEDY = SamplingParams(temperature=0)
TEXT = [tiny.BOS, *range(4, 30)]


@contextmanager
def opened(target: Path, draft: str | Path = "none", **how: Any) -> Iterator[BatchingEngine]:
    """An engine of three slots that drafts 4 tokens a cycle, unless told otherwise."""
    how = {"k": 4, "slots": 3, "ctx": 128, "threads": 1, "kernels": "off", **how}
    engine, _ = load_engine(target, draft, **how)
    try:
        yield engine
    finally:
        engine.close()


class Told:
    """What was told of an answer."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.began, self.ended = Flag(), Flag()  # its first event, and its last
        self.handle: Handle

    def __call__(self, event: Event) -> None:
        assert not self.ended.is_set(), f"{event} came after the last event"
        self.events.append(event)
        self.began.set()
        if isinstance(event, Ended | Failed):
            self.ended.set()

    def wait(self) -> Told:
        assert self.ended.wait(PATIENCE)
        return self

    @property
    def end(self) -> Ended:
        last = self.wait().events[-1]
        assert isinstance(last, Ended), last
        return last

    @property
    def error(self) -> Exception:
        last = self.wait().events[-1]
        assert isinstance(last, Failed), last
        return last.error

    @property
    def deltas(self) -> list[Delta]:
        return [event for event in self.events if isinstance(event, Delta)]

    @property
    def readings(self) -> list[Reading]:
        return [event for event in self.events if isinstance(event, Reading)]

    @property
    def tokens(self) -> list[Token]:
        return [token for delta in self.deltas for token in delta.tokens]

    @property
    def ids(self) -> list[int]:
        """Of a whole answer."""
        assert self.end.finish != "interrupted"
        return [token.id for token in self.tokens]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


class Held(Told):
    """Holds the engine's thread in an event of this answer until it is `let_go`."""

    def __init__(self, first: type[Event] = Reading) -> None:
        """It holds at the `first` event of a kind."""
        super().__init__()
        self._first = first
        self.holds, self._released = Flag(), Flag()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, self._first) and not self.holds.is_set():
            self.holds.set()
            assert self._released.wait(PATIENCE)

    def let_go(self) -> None:
        self._released.set()


def request(tokens: Sequence[int], **how: Any) -> Request:
    """Greedy and 16 tokens long, unless told otherwise."""
    how = {"sampling": GREEDY, "max_tokens": 16, "ignore_eos": True, **how}
    return Request(tokens=tokens, **how)


def ask(
    engine: BatchingEngine, tokens: Sequence[int], told: Told | None = None, **how: Any
) -> Told:
    told = told or Told()
    told.handle = engine.submit(request(tokens, **how), told)
    return told


@contextmanager
def holding(engine: BatchingEngine, first: type[Event] = Reading, **how: Any) -> Iterator[Held]:
    """The engine's thread stands still: what is submitted here is taken up at one time."""
    held = Held(first)
    ask(engine, TEXT[:3], held, **how)
    assert held.holds.wait(PATIENCE)
    try:
        yield held
    finally:
        held.let_go()


def together(engine: BatchingEngine, asked: Sequence[Request]) -> list[Told]:
    """All of `asked`, which are taken up at one time, up to their ends."""
    answers = [Told() for _ in asked]
    with holding(engine, max_tokens=1) as held:
        for one, told in zip(asked, answers, strict=True):
            told.handle = engine.submit(one, told)
    for told in (held, *answers):
        told.wait()
    return answers


def plain(target: Path, asked: Sequence[Request]) -> list[list[int]]:
    """The tokens of each answer by plain decoding, one text after the other."""
    texts = []
    with Model(target) as model, Context(model, n_ctx=256, threads=1) as context:
        for one in asked:
            assert one.ignore_eos
            assert one.max_tokens is not None
            params = replace(
                one.sampling, logit_bias={**one.sampling.logit_bias, tiny.EOS: -np.inf}
            )
            cycles = start(
                KVSequence(context),
                None,
                list(one.tokens),
                k=0,
                params=params,
                rng=np.random.default_rng(one.seed),
                max_tokens=one.max_tokens,
            )
            texts.append([token for cycle in cycles for token in cycle.tokens])
            context.clear()
    return texts
