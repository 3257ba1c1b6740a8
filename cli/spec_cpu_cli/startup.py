"""Ctrl-C while Python itself is at work: it imports modules, or ignores what was raised."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130  # 128 + SIGINT, as shells have it
_MOMENT = 0.001  # seconds


@contextmanager
def ends_at_once() -> Iterator[None]:
    """While entered, Ctrl-C ends the process. For imports, when there is nothing to keep yet.

    A KeyboardInterrupt there would pass through the code of others, some of which takes any
    exception for a module that is missing.
    """
    if signal.getsignal(signal.SIGINT) != signal.default_int_handler:  # ignored, or taken already
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def never_ignored() -> Iterator[None]:
    """While entered, a KeyboardInterrupt that Python ignores is raised once more, outside.

    Python ignores what is raised in a destructor, and in a callback of C or of a weak reference.
    """
    earlier = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _MOMENT)
        else:
            earlier(ignored)

    def press_again(_number: int, frame: FrameType | None) -> None:
        if frame and frame.f_code is hook.__code__:  # what is raised there is ignored as well
            signal.setitimer(signal.ITIMER_REAL, _MOMENT)
        else:
            signal.raise_signal(signal.SIGINT)

    sys.unraisablehook = hook
    before = signal.signal(signal.SIGALRM, press_again)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = earlier


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_CODE)
