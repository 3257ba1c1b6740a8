"""Ctrl-C while llama.cpp computes: the first one asks to stop, the second one leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from spec_cpu_cli.progress import Report

EXIT_CODE = 130  # 128 + SIGINT, as shells have it


class Interrupt:
    """While entered, Ctrl-C sets `requested` instead of raising KeyboardInterrupt.

    A signal handler of Python's own only runs between bytecodes of the main thread, so not during a
    long pass. The C-level handler writes to a pipe at once, though, and a thread reads it.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Interrupt:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old_handler = signal.signal(signal.SIGINT, _ignore)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        signal.signal(signal.SIGINT, self._old_handler)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._write)  # ends the thread: its read comes back empty
        self._thread.join()
        os.close(self._read)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed: for where there is nothing to keep."""
        if self.requested:
            raise KeyboardInterrupt

    def checked(self, report: Report) -> Report:
        """`report`, made to `check` each time it is told something."""

        def checking(what: str, done: int, total: int | None) -> None:
            self.check()
            report(what, done, total)

        return checking

    def _listen(self) -> None:
        while numbers := os.read(self._read, 64):
            for _ in range(numbers.count(signal.SIGINT)):
                if self.requested:
                    os._exit(EXIT_CODE)
                self.requested = True


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The pipe has told already."""
