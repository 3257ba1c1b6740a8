"""An engine that says what it is told to: for what stands before an engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.answer.steps import Finish
from spec_cpu.errors import ContextError, SpecCpuError, UsageError
from spec_cpu.llama.context import Rows
from spec_cpu.llama.model import Model
from spec_cpu.serve.engine.engine import QueueFullError, Share, State
from spec_cpu.serve.engine.request import (
    Deliver,
    Delta,
    Ended,
    Failed,
    Logprobs,
    Reading,
    Request,
    Token,
)
from spec_cpu.text.streaming import Origin, TextStream

STEP = 3  # tokens that a step adds
CONTEXT = 2000
ORIGINS: tuple[Origin, ...] = ("accepted", "accepted", "bonus")


@dataclass
class _Handle:
    id: int
    place: int
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.cancelled.set()


@dataclass
class FakeEngine:
    """Answers each request with `say`, a few tokens a step, one request after the other.

    Attributes:
        patient: a step waits until `go` allows it.
        fails: in the place of the second step.
        embeds: does it give embeddings?
        asked: all requests so far. `cancelled`: how many of them were ended before their time.
        graces: what `close` was called with.
    """

    model: Model
    say: str | Callable[[Request], str] = "Hello there, how are you?"
    queue: int = 8
    patient: bool = False
    fails: SpecCpuError | None = None
    embeds: bool = True
    asked: list[Request] = field(default_factory=list)
    cancelled: int = 0
    graces: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.settled = threading.Event()  # nothing is under way or waits
        self.begun = threading.Event()  # something was, at some time
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Request, Deliver, _Handle]] = deque()
        self._active = 0
        self._closed = False
        self._now: _Handle | None = None
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    @property
    def state(self) -> State:
        shares = [Share(1, STEP, STEP - 1)] if self._active else []
        return State(
            slots=1,
            active=self._active,
            waiting=len(self._waiting),
            verify=(1.0, 1.1, 1.2),
            width=STEP,
            shares=shares,
            tokens=30,
            drafted=20,
            accepted=10,
            cycles=10,
            by_source={"ngram": (20, 10)},
            context=CONTEXT,
        )

    def submit(self, request: Request, deliver: Deliver) -> _Handle:
        if len(request.tokens) >= CONTEXT:
            raise ContextError(f"the prompt has {len(request.tokens)} tokens: shorten it")
        with self._changed:
            if self._closed:
                raise UsageError("the engine was closed")
            if len(self._waiting) >= self.queue:
                raise QueueFullError(2.5)
            handle = _Handle(len(self.asked), len(self._waiting) + self._active)
            self.asked.append(request)
            self._waiting.append((request, deliver, handle))
            self.settled.clear()
            self._changed.notify()
        return handle

    def embed(self, tokens: Sequence[int]) -> Rows:
        if not self.embeds:
            raise UsageError("this model gives no embeddings")
        return np.array([3.0, 4.0, float(len(tokens) > CONTEXT)], np.float32)

    def close(self, grace: float = 0.0) -> None:
        self.graces.append(grace)
        with self._changed:
            self._closed = True
            for _, _, handle in self._waiting:
                handle.cancel()
            self._changed.notify()
        if not grace and self._now:
            self._now.cancel()
        self._worker.join(grace or None)
        if self._now:
            self._now.cancel()
        self._worker.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._active = 0
                if not self._waiting:
                    self.settled.set()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                request, deliver, self._now = self._waiting.popleft()
                self._active = 1
                self.begun.set()
            self._answer(request, deliver, self._now)

    def _answer(self, request: Request, deliver: Deliver, handle: _Handle) -> None:
        vocab, stats = self.model.vocab, Stats()
        deliver(Reading(0, len(request.tokens)))
        stream, finish = TextStream(vocab, request.stops), None
        for step in self._steps(request):
            tokens = step
            if self.fails and stats.cycles:
                deliver(Failed(self.fails))
                return
            while self.patient and not handle.cancelled.is_set():
                if self.go.acquire(timeout=0.005):
                    break
            if handle.cancelled.is_set():
                self.cancelled += 1
                finish = "interrupted"
                break
            pieces = []
            for n, token in enumerate(step, 1):
                pieces += stream.push(token, "plain")
                if stream.stopped or token in vocab.end_tokens:
                    tokens, finish = step[:n], "stop"
                    break
            stats.cycles += 1
            stats.tokens += len(tokens)
            stats.drafted += STEP
            stats.accepted += len(tokens) - 1
            stats.decode += 0.01
            if finish is None and stats.tokens == request.max_tokens:
                finish = "length"
            if finish:
                pieces += stream.finish("plain")
            deliver(Delta(pieces, self._named(request, tokens), STEP, len(tokens) - 1))
            if finish:
                break
        stats.by_source["ngram"] = SourceStats(
            drafted=stats.drafted, accepted=stats.accepted, tried=stats.drafted
        )
        ending: Finish = finish or "length"
        deliver(Ended(ending, request.seed or 0, len(request.tokens), 1, stats))

    def _steps(self, request: Request) -> Iterator[list[int]]:
        vocab = self.model.vocab
        said = self.say if isinstance(self.say, str) else self.say(request)
        # SentencePiece puts a space before a text: not before one that begins with a line's end.
        tokens = vocab.tokenize(f"\n{said}", add_special=False)
        first = next(i for i, token in enumerate(tokens) if vocab.piece(token) == b"\n") + 1
        tokens = [*tokens[first:], vocab.eos][: request.max_tokens]
        for i in range(0, len(tokens), STEP):
            yield tokens[i : i + STEP]

    def _named(self, request: Request, tokens: Sequence[int]) -> list[Token]:
        found = []
        for token, origin in zip(tokens, ORIGINS, strict=False):
            top = [(token, -0.1), (5, -2.5), (6, -np.inf)][: request.logprobs or 0]
            found.append(
                Token(
                    token,
                    origin,
                    ("ngram",) if origin == "accepted" else (),
                    ((7, 0.25),) if request.alternatives else (),
                    None if request.logprobs is None else Logprobs(-0.1, top),
                )
            )
        return found
