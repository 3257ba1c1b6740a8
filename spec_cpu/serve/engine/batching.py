"""The engine's thread: it takes requests up, reads prompts, and runs cycles that all share."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import count
from threading import Condition, Thread
from time import monotonic, perf_counter

import numpy as np

from spec_cpu.cycle.company import Company
from spec_cpu.cycle.decode import Cycle, Text, cycle
from spec_cpu.errors import ContextError, SpecCpuError, UsageError
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.parts import Parts
from spec_cpu.serve.engine.answer import Answer, Settings
from spec_cpu.serve.engine.cells import Cells
from spec_cpu.serve.engine.counters import Counters
from spec_cpu.serve.engine.engine import Handle, QueueFullError, State
from spec_cpu.serve.engine.pace import ReadingPace
from spec_cpu.serve.engine.request import Deliver, Request
from spec_cpu.serve.engine.slots import Slots

_LOG = logging.getLogger(__name__)
_HIDDEN_ROWS = 64  # in a pass for embeddings: llama.cpp works out the logits of each
_CLOSED = "the server is stopping: it takes no more requests"


class BatchingEngine:
    """Answers requests from any thread; one thread of its own uses the models.

    Attributes:
        model: the target. Its vocabulary and its template may be used from any thread while the
            engine is open.
    """

    def __init__(
        self,
        parts: Parts,
        cells: Cells,
        slots: Slots,
        settings: Settings,
        *,
        queue: int,
        max_gap: float,
    ) -> None:
        """Begin to work. `serve.engine.loading` makes what it works with.

        Args:
            queue: requests that may wait.
            max_gap: seconds that an answer under way should wait for its next tokens, at most,
                while prompts are read.
        """
        self.model: Model = parts.target
        self._parts, self._cells, self._slots, self._settings = parts, cells, slots, settings
        self._queue = queue
        self._company = None if settings.costs is None else Company(settings.costs)
        self._reading_pace = ReadingPace(max_gap, most=cells.context.n_batch)
        self._changed = Condition()
        self._waiting: deque[Answer] = deque()
        self._active: list[Answer] = []
        self._jobs: deque[tuple[Callable[[], Rows], Future[Rows]]] = deque()
        self._deadline: float | None = None  # once it is closed
        self._numbers = count(1)
        self._turn = 0
        self._hidden: KVSequence | None = None  # for embeddings, once they are asked for
        self._counters = Counters(len(slots), settings.ctx, settings.costs)
        self._thread = Thread(target=self._work, name="spec-cpu engine", daemon=True)
        self._thread.start()

    # -- for any thread -----------------------------------------------------------------------

    def submit(self, request: Request, deliver: Deliver) -> Handle:
        """Answer `request`, as soon as there is a slot for it.

        Raises:
            UsageError: the request makes no sense, or the engine is closed.
            ContextError: the prompt does not fit into a conversation's context.
            QueueFullError: too many wait already.
        """
        self._check(request)
        with self._changed:
            if self._deadline is not None:
                raise UsageError(_CLOSED)
            if len(self._waiting) >= self._queue + len(self._slots) - len(self._active):
                raise QueueFullError(self._counters.seconds_until_room(len(self._waiting)))
            answer = Answer(next(self._numbers), request, deliver, self._settings)
            self._waiting.append(answer)
            self._changed.notify_all()
        return _Taken(self, answer)

    def _check(self, request: Request) -> None:
        if not request.tokens:
            raise UsageError("the prompt has no tokens in this model's vocabulary")
        if request.max_tokens is not None and request.max_tokens < 1:
            raise UsageError(f"`max_tokens` must be at least 1, not {request.max_tokens}")
        request.sampling.check_tokens(self.model.vocab.n, self.model.path.name)
        if len(request.tokens) >= self._settings.ctx:
            raise ContextError(
                f"the prompt has {len(request.tokens):,} tokens, but a conversation holds "
                f"{self._settings.ctx:,} with the answer: shorten it, or raise `ctx`"
            )

    def place(self, answer: Answer) -> int:
        """Requests before `answer` in the queue, itself counted; 0 once it was taken up."""
        with self._changed:
            return 1 + self._waiting.index(answer) if answer in self._waiting else 0

    def embed(self, tokens: Sequence[int]) -> Rows:
        """The mean of the final hidden states of `tokens`: float32, (n_embd,). Waits for it.

        Raises:
            UsageError: no tokens, or the engine is closed.
            ContextError: they do not fit.
        """
        if not tokens:
            raise UsageError("the text has no tokens in this model's vocabulary")
        if len(tokens) > self._settings.ctx:
            raise ContextError(
                f"the text has {len(tokens):,} tokens, but a context holds {self._settings.ctx:,}"
            )
        future: Future[Rows] = Future()
        with self._changed:
            if self._deadline is not None:
                raise UsageError(_CLOSED)
            self._jobs.append((lambda: self._mean_of_hidden(tokens), future))
            self._changed.notify_all()
        return future.result()

    @property
    def state(self) -> State:
        """What it is doing just now."""
        with self._changed:
            return self._counters.state(len(self._active), len(self._waiting))

    def close(self, grace: float = 0.0) -> None:
        """Take no more requests, end what is under way after `grace` seconds at most, free all.

        A second call, from another thread, can make the grace shorter.
        """
        with self._changed:
            deadline = monotonic() + grace
            self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
            self._changed.notify_all()
        self._thread.join()

    # -- the engine's thread ------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._wait_for_work():
                self._take_up()
                self._run_job()
                self._read_a_part()
                self._continue_texts()
        finally:
            self._end_all()
            self._cells.context.close()
            self._parts.close()

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; False: it is closed, and all is done."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._active or self._jobs or self._deadline is not None
            )
            if self._deadline is None:
                return True
            self._give_up(self._waiting)
            self._waiting.clear()
            return bool(self._active) and monotonic() < self._deadline

    def _give_up(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            answer.fail(UsageError(_CLOSED))

    def _end_all(self) -> None:
        with self._changed:
            self._deadline = self._deadline or monotonic()
            self._give_up(self._waiting)
            for _, future in self._jobs:
                future.set_exception(UsageError(_CLOSED))
            for answer in self._active:
                answer.interrupt()
            self._active.clear()
            self._waiting.clear()
            self._jobs.clear()

    def _take_up(self) -> None:
        """Drop what nobody waits for any more, and give slots to those who wait."""
        for answer in self._active:
            if answer.cancelled:
                answer.interrupt()
        with self._changed:
            self._active = [answer for answer in self._active if not answer.over]
            for answer in [one for one in self._waiting if one.cancelled]:
                self._waiting.remove(answer)
                answer.interrupt()
            while self._waiting and (slot := self._slots.take(self._waiting[0].request.tokens)):
                answer = self._waiting.popleft()
                self._active.append(answer)
                answer.begin(slot)

    def _run_job(self) -> None:
        with self._changed:
            job, future = self._jobs.popleft() if self._jobs else (None, None)
        if job is None or future is None:
            return
        try:
            future.set_result(job())
        except Exception as error:
            future.set_exception(error)

    def _read_a_part(self) -> None:
        """A part of one prompt; which one, in turn."""
        reading = [answer for answer in self._active if answer.text is None and not answer.over]
        if not reading:
            return
        self._turn += 1
        answer = reading[self._turn % len(reading)]
        start = perf_counter()
        try:
            size = self._reading_pace.tokens(beside_texts=len(reading) < len(self._active))
            self._cells.make_room(size)
            read = answer.read(size)
        except Exception as error:
            self._failed([answer], error)
            return
        self._reading_pace.took(read, perf_counter() - start)

    def _continue_texts(self) -> None:
        """One cycle of all whose prompts were read."""
        answers = [one for one in self._active if one.text is not None and not one.over]
        if not answers:
            return
        start = perf_counter()
        try:
            self._cells.make_room(self._cells.context.max_outputs)
            texts = [one.text for one in answers if one.text is not None]
            done = self._cycle(texts)
        except Exception as error:
            self._failed(answers, error)
            return
        for answer, its in zip(answers, done, strict=True):
            answer.take(its)
        seconds = perf_counter() - start
        self._reading_pace.cycle_took(seconds)
        self._counters.add(answers, done, seconds)

    def _cycle(self, texts: Sequence[Text]) -> list[Cycle]:
        company = self._company
        if company is None:
            return cycle(texts)
        company.begin(texts)
        done = cycle(texts, company.share)
        company.observe(texts, done)
        return done

    def _failed(self, answers: Sequence[Answer], error: Exception) -> None:
        """These cannot go on: whatever their sequences hold is forgotten."""
        if not isinstance(error, SpecCpuError):
            _LOG.error("the engine failed", exc_info=error)
            error = SpecCpuError(f"the engine failed ({type(error).__name__}: {error})")
        for answer in answers:
            if answer.slot is not None:
                answer.slot.clear()
            answer.fail(error)

    def _mean_of_hidden(self, tokens: Sequence[int]) -> Rows:
        if self._hidden is None:
            self._hidden = KVSequence(
                Context(
                    self.model,
                    n_ctx=self._settings.ctx,
                    max_outputs=_HIDDEN_ROWS,
                    n_batch=_HIDDEN_ROWS,
                    threads=self._cells.context.asked_threads,
                    hidden=True,
                )
            )
        self._hidden.truncate(0)
        total = np.zeros(self.model.n_embd, np.float64)
        for begin in range(0, len(tokens), _HIDDEN_ROWS):
            part = tokens[begin : begin + _HIDDEN_ROWS]
            self._hidden.score(part)
            total += self._hidden.context.hidden_rows(len(part)).sum(axis=0, dtype=np.float64)
        mean: Rows = (total / len(tokens)).astype(np.float32)
        return mean


class _Taken:
    """A request that was taken. See `Handle`."""

    def __init__(self, engine: BatchingEngine, answer: Answer) -> None:
        self._engine, self._answer = engine, answer

    @property
    def id(self) -> int:
        return self._answer.number

    @property
    def place(self) -> int:
        return self._engine.place(self._answer)

    def cancel(self) -> None:
        self._answer.cancel()
