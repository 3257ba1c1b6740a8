"""Ctrl-C and other signals while llama.cpp computes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from spec_cpu_cli.keys import echo_off, echo_on
from spec_cpu_cli.progress import Report

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LEAVING = (*_ENDING, signal.SIGTSTP)


class Hide(Protocol):
    """Takes away what is drawn on the terminal, for now or for good."""

    def __call__(self, *, for_good: bool) -> None: ...


class Interrupt:
    """While entered, Ctrl-C sets `requested` instead of raising KeyboardInterrupt.

    A second one leaves the program at once, as do the signals that end it. Keys are not echoed
    meanwhile; whatever ends this, or stops the process (Ctrl-Z), has the terminal as it was.

    A signal handler of Python's own only runs between bytecodes of the main thread, so not during a
    long pass. The C-level handler writes to a pipe at once, though, and a thread reads it.
    """

    def __init__(self, hide: Hide | None = None, *, silent_after: bool = False) -> None:
        """Take signals once it is entered.

        Args:
            silent_after: echo keys only from `speak` on, for a prompt comes next.
            hide: takes away what is drawn on the terminal: called before the process stops, or
                leaves at once.
        """
        self.requested = False
        self._stop_requested = False
        self._hide = hide or _nothing
        self._silent_after = silent_after
        self._old_handlers: dict[int, signal.Handlers | Callable[..., object] | int | None] = {}

    def __enter__(self) -> Interrupt:
        speak()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._take(signal.SIGINT)
        for number in _LEAVING:
            if signal.getsignal(number) == signal.SIG_DFL:  # not where it is to be ignored
                self._take(number)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        echo_off()
        return self

    def __exit__(self, *_error: object) -> None:
        if not self._silent_after:
            echo_on()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._write)  # ends the thread: its read comes back empty
        self._thread.join()
        os.close(self._read)
        if self._silent_after:
            _stay_silent()

    def check(self) -> None:
        """Stop if Ctrl-Z was pressed, and raise KeyboardInterrupt if Ctrl-C was.

        For where there is nothing to keep.
        """
        self.stop_if_asked()
        if self.requested:
            raise KeyboardInterrupt

    def checked(self, report: Report) -> Report:
        """`report`, made to `check` each time it is told something."""

        def checking(what: str, done: int, total: int | None) -> None:
            self.check()
            report(what, done, total)

        return checking

    def stop_if_asked(self) -> None:
        """If Ctrl-Z was pressed, stop the process until it is continued."""
        if not self._stop_requested:
            return
        self._stop_requested = False
        self._hide(for_good=False)
        echo_on()
        os.kill(os.getpid(), signal.SIGSTOP)
        echo_off()

    def _take(self, number: int) -> None:
        self._old_handlers[number] = signal.signal(number, _ignore)

    def _listen(self) -> None:
        while numbers := os.read(self._read, 64):
            for number in numbers:
                if number == signal.SIGTSTP:
                    self._stop_requested = True
                elif number == signal.SIGINT and not self.requested:
                    self.requested = True
                elif number == signal.SIGINT or number in _ENDING:
                    self._leave(128 + number)

    def _leave(self, code: int) -> None:
        """End the process now, whatever the main thread does."""
        self._hide(for_good=True)
        echo_on()
        os._exit(code)


def speak() -> None:
    """Echo keys again, if an `Interrupt` was left silent."""
    echo_on()
    for number in _LEAVING:
        if signal.getsignal(number) is _speak_and_leave:
            signal.signal(number, signal.SIG_DFL)


def _stay_silent() -> None:
    """Until `speak`: whatever ends or stops the process has keys echoed first."""
    for number in _LEAVING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _speak_and_leave)


def _speak_and_leave(number: int, _frame: FrameType | None) -> None:
    speak()
    os.kill(os.getpid(), number)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The pipe has told already."""


def _nothing(*, for_good: bool) -> None:
    """Nothing is drawn."""
