"""The engine's thread: it takes requests up, reads prompts, and runs cycles that all share."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from threading import Condition, Thread
from time import monotonic, perf_counter

from spec_cpu.answer.steps import Step
from spec_cpu.arguments import check_seed, one_of
from spec_cpu.cycle.company import Company
from spec_cpu.cycle.decode import Cycle, Text, cycle
from spec_cpu.cycle.verify import RULES
from spec_cpu.errors import ContextError, SpecCpuError, UsageError
from spec_cpu.llama.context import Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.parts import Parts
from spec_cpu.serve.engine.answer import Answer, Settings
from spec_cpu.serve.engine.cells import Cells
from spec_cpu.serve.engine.counters import Counters
from spec_cpu.serve.engine.embedding import Embedding, sequence_for_embeddings
from spec_cpu.serve.engine.engine import Handle, QueueFullError, State
from spec_cpu.serve.engine.pace import ReadingPace
from spec_cpu.serve.engine.request import Deliver, Request
from spec_cpu.serve.engine.slots import Slots

_LOG = logging.getLogger(__name__)
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
        self._embeddings: deque[Embedding] = deque()
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
            if len(self._waiting) >= self._queue + len(self._slots) - len(self._under_way):
                raise QueueFullError(self._counters.seconds_until_room(len(self._waiting)))
            answer = Answer(next(self._numbers), request, deliver, self._settings)
            self._waiting.append(answer)
            self._changed.notify_all()
        return _Taken(self, answer)

    def _check(self, request: Request) -> None:
        n_vocab = self.model.vocab.n
        if not request.tokens:
            raise UsageError("the prompt has no tokens in this model's vocabulary")
        for tokens in (request.tokens, *request.references):
            _check_ids(tokens, n_vocab)
        if request.max_tokens is not None and request.max_tokens < 1:
            raise UsageError(f"`max_tokens` must be at least 1, not {request.max_tokens}")
        if request.logprobs is not None and not 0 <= request.logprobs <= n_vocab:
            raise UsageError(
                f"logprobs must be from 0 to {n_vocab:,}, the tokens of this model, "
                f"not {request.logprobs}"
            )
        check_seed(request.seed)
        one_of("rule", request.rule, RULES)
        request.sampling.check_tokens(n_vocab, self.model.path.name)
        if len(request.tokens) >= self._settings.ctx:
            raise ContextError(
                f"the prompt has {len(request.tokens):,} tokens, but a conversation holds "
                f"{self._settings.ctx:,} with the answer: shorten it, or raise `ctx`"
            )

    def place(self, answer: Answer) -> int:
        """Its number in the queue; 0 once it was taken up, or if it is about to be."""
        with self._changed:
            if answer not in self._waiting:
                return 0
            free = len(self._slots) - len(self._active)
            return max(0, 1 + self._waiting.index(answer) - free)

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
        _check_ids(tokens, self.model.vocab.n)
        wanted = Embedding(tokens)
        with self._changed:
            if self._deadline is not None:
                raise UsageError(_CLOSED)
            self._embeddings.append(wanted)
            self._changed.notify_all()
        return wanted.future.result()

    @property
    def state(self) -> State:
        """What it is doing just now."""
        with self._changed:
            return self._counters.state(len(self._under_way), len(self._waiting))

    def close(self, grace: float = 0.0) -> None:
        """Take no more requests, end what is under way after `grace` seconds at most, free all.

        A second call, from another thread, can make the grace shorter.
        """
        with self._changed:
            deadline = monotonic() + grace
            self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
            self._changed.notify_all()
        self._thread.join()

    @property
    def _under_way(self) -> list[Answer]:
        """Answers that have a slot and did not come to their end."""
        return [answer for answer in self._active if not answer.over]

    # -- the engine's thread ------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._wait_for_work():
                self._take_up()
                self._embed_a_part()
                self._read_a_part()
                self._continue_texts()
        finally:
            self._end_all()
            self._slots.close()
            self._parts.close()

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; False: it is closed, and all is done."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._waiting or self._active or self._embeddings or self._deadline is not None
                )
            )
            if self._deadline is None:
                return True
            self._give_up(self._waiting)
            self._waiting.clear()
            return bool(self._under_way) and monotonic() < self._deadline

    def _give_up(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            answer.fail(UsageError(_CLOSED))

    def _end_all(self) -> None:
        with self._changed:
            self._deadline = self._deadline or monotonic()
            self._give_up(self._waiting)
            for wanted in self._embeddings:
                wanted.future.set_exception(UsageError(_CLOSED))
            for answer in self._under_way:
                answer.interrupt()
            self._active.clear()
            self._waiting.clear()
            self._embeddings.clear()

    def _take_up(self) -> None:
        """Drop what nobody waits for any more, and give slots to those who wait."""
        for answer in self._under_way:
            if answer.cancelled:
                answer.interrupt()
        with self._changed:
            self._active = self._under_way
            gone = [answer for answer in self._waiting if answer.cancelled]
            for answer in gone:
                self._waiting.remove(answer)
        for answer in gone:
            answer.interrupt()
        # Texts may have to be copied: whoever asks meanwhile must not wait for that.
        while (first := self._first) is not None:
            try:
                slot = self._slots.take(first.request.tokens)
                if slot is None:
                    return
                first.begin(slot)
            except Exception as error:
                self._failed([first], error)
            with self._changed:
                self._waiting.popleft()
                self._active.append(first)

    @property
    def _first(self) -> Answer | None:
        """Who waits for longest."""
        with self._changed:
            return self._waiting[0] if self._waiting else None

    def _embed_a_part(self) -> None:
        """A part of the text whose embedding is wanted for longest."""
        if not self._embeddings:
            return
        wanted = self._embeddings[0]
        try:
            if self._hidden is None:
                threads = self._cells.context.asked_threads
                self._hidden = sequence_for_embeddings(self.model, self._settings.ctx, threads)
            done = wanted.read_part(self._hidden)
        except Exception as error:
            wanted.future.set_exception(error)
            done = True
        if done:
            with self._changed:
                self._embeddings.popleft()

    def _read_a_part(self) -> None:
        """A part of one prompt; which one, in turn."""
        reading = [answer for answer in self._under_way if answer.text is None]
        if not reading:
            return
        self._turn += 1
        answer = reading[self._turn % len(reading)]
        start = perf_counter()
        try:
            size = self._reading_pace.tokens(beside_texts=len(reading) < len(self._under_way))
            self._cells.make_room(answer.unread)
            read = answer.read(size)
        except Exception as error:
            self._failed([answer], error)
            return
        self._reading_pace.took(read, perf_counter() - start)

    def _continue_texts(self) -> None:
        """One cycle of all whose prompts were read."""
        answers = [one for one in self._under_way if one.text is not None]
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
        steps = [*map(self._take, answers, done)]
        seconds = perf_counter() - start
        self._reading_pace.cycle_took(seconds)
        self._counters.add(answers, done, steps, seconds)  # before anybody is told of it
        for answer, step in zip(answers, steps, strict=True):
            if step is not None:
                self._tell(answer, step)

    def _take(self, answer: Answer, its: Cycle) -> Step | None:
        try:
            return answer.take(its)
        except Exception as error:
            self._failed([answer], error)
            return None

    def _tell(self, answer: Answer, step: Step) -> None:
        try:
            answer.tell(step)
        except Exception as error:
            self._failed([answer], error)

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


def _check_ids(tokens: Sequence[int], n_vocab: int) -> None:
    """One that the model does not have would fail the pass that others share."""
    wrong = next((token for token in tokens if not 0 <= token < n_vocab), None)
    if wrong is not None:
        raise UsageError(f"token {wrong} is not in the vocabulary of {n_vocab:,} tokens")
