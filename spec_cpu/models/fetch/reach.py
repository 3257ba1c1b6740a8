"""Whether a server can be reached at all: a person without a network is told so within seconds."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar, cast

PATIENCE = 3.5
"""Seconds until a server that does not answer counts as out of reach."""

T = TypeVar("T")


def within(seconds: float, ask: Callable[[], T]) -> T:
    """What `ask` returns or raises.

    It runs in a thread that is left alone when the time is over: timeouts of sockets hold for each
    address of a server anew, and nothing but leaving ends the search for its name.

    Raises:
        TimeoutError: that took longer than `seconds`.
    """
    done: SimpleQueue[tuple[T, None] | tuple[None, Exception]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((ask(), None))
        except Exception as error:
            done.put((None, error))

    Thread(target=run, daemon=True).start()
    try:
        found, error = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
    if error is not None:
        raise error
    return cast(T, found)
