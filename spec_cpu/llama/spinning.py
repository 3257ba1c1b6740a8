"""How long llama.cpp's threads spin where they wait for each other, before they sleep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_CHOICES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
# About a millisecond: no wait inside a pass takes so long unless the thread that is waited for does
# not run, since another program does. GNU OpenMP's own count is 15 times as much, and a pass may
# have to pay it a few hundred times.
_SPINS = 20_000


@contextmanager
def short_spins() -> Iterator[None]:
    """While entered, GNU OpenMP is loaded to spin for a short time, unless a person chose.

    It reads its environment once, when it is loaded; programs that are started later should not
    find our choice in theirs.
    """
    if any(name in os.environ for name in _CHOICES):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = str(_SPINS)
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]
