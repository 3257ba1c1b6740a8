"""Whose turn it is: one thread at a time uses a session, and closing it waits for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread, current_thread

from spec_cpu.errors import BusyError, UsageError
from spec_cpu.progress import Progress

CLOSED = "this session was closed: load a new one"


class Turns:
    """Keeps threads out of each other's way, and out of what was freed.

    Each use (a step of an answer, say) lies within `use`; threads never overlap there. An answer
    is a row of uses with pauses between them. It belongs to the thread that took its last step, and
    while that thread lives and the answer is under way, others are refused rather than made to
    wait, for they might wait for ever. Its steps alone may go on in another thread.
    """

    def __init__(self, free: Callable[[], None]) -> None:
        """`free` is called once nobody uses anything any more; perhaps several times."""
        self._free = free
        self._changed = Condition()
        self._user: Thread | None = None  # within `use`
        self._answering: Thread | None = None  # took the last step of the answer under way
        self._answer = 0  # number of the latest answer
        self.closed = False

    def begin(self) -> int:
        """Begin an answer, which breaks off one of this thread's own; its number.

        Raises:
            UsageError: it is closed.
            BusyError: another thread is at work, or has an answer under way.
        """
        with self._changed:
            self._check(None)
            self._answering = current_thread()
            self._answer += 1
            return self._answer

    @contextmanager
    def ended(self, answer: int) -> Iterator[bool]:
        """End the answer `answer`: yields whether it is the latest one.

        No other answer begins before the block is left, so that this one can be booked within it.
        """
        with self._changed:
            latest = answer == self._answer
            try:
                yield latest
            finally:
                if latest:
                    self._answering = None

    @contextmanager
    def use(self, answer: int | None = None) -> Iterator[None]:
        """Use it, for a step of the answer `answer` or for something else.

        Raises:
            UsageError: it is closed, or another answer has begun.
            BusyError: as for `begin`.
        """
        me = current_thread()
        with self._changed:
            self._check(answer)
            self._user = me
            if answer is not None:
                self._answering = me
        try:
            yield
        finally:
            with self._changed:
                self._user = None
                if self.closed:
                    self._free()
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Use it for what breaks off any answer of this thread. Errors: as for `begin`."""
        number = self.begin()
        try:
            with self.use(number):
                yield
        finally:
            with self.ended(number):
                pass

    def close(self) -> None:
        """Refuse all further use, wait until the present one is over, and free.

        Within a use (from a callback, say) it returns at once: the end of that use frees.
        """
        with self._changed:
            self.closed = True
            if self._user is not current_thread():
                self._changed.wait_for(lambda: self._user is None)
                self._free()

    def while_open(self, progress: Progress | None) -> Progress:
        """`progress`, made to raise UsageError once it is closed: ends a long use early."""

        def report(what: str, done: int, total: int | None) -> None:
            self._check_open()
            if progress is not None:
                progress(what, done, total)

        return report

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError(CLOSED)

    def _check(self, answer: int | None) -> None:
        self._check_open()
        if answer is not None and answer != self._answer:
            raise UsageError("this answer was broken off: the session went on without it")
        if self._user is not None or (answer is None and self._answers_elsewhere()):
            raise BusyError(
                "this session is busy with another answer: let that one end (or close its "
                "generator) first, or load another session"
            )

    def _answers_elsewhere(self) -> bool:
        thread = self._answering
        return thread is not None and thread is not current_thread() and thread.is_alive()
