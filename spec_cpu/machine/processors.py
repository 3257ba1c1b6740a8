"""How many processors other programs leave to this process just now."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import perf_counter

from spec_cpu.machine import hardware
from spec_cpu.machine.disturbance import spent

_WINDOW = 0.25  # seconds: Linux counts a processor's time in hundredths
_PAUSE = 5.0  # seconds without a pass: a window so long says nothing of how it is now
_NEARLY = 0.4  # of a processor: a browser that takes so much leaves it to us
_UNDISTURBED = 10  # times that our threads made way in a window: the system has work, too


class Processors:
    """Watches how busy the processors are that this process may run on. Any thread may ask.

    To look takes up to some milliseconds, so it is done only where it may change something: at
    first, while a processor is left out, and while threads of ours have to make way for others.

    Attributes:
        free: how many of them others did not use in the window watched last, possibly a fraction.
    """

    def __init__(self) -> None:
        self._ours = hardware.allowed_processors()
        self.free = float(len(self._ours))
        self._lock = Lock()
        self._claims = 0
        self._begun, self._preempted = perf_counter(), preempted()
        self._looked = self._used = self._busy = 0.0
        self._look()
        self._watching = True

    def threads(self, most: int) -> int:
        """How many threads, up to `most`, can run side by side.

        Threads that wait for each other get less done than one alone where another program holds
        one of them up: a processor that is taken is left out.
        """
        with self._lock:
            window = perf_counter() - self._begun
            if window > _WINDOW:
                self._end_window(paused=window > _PAUSE)
                self._watching |= self._fitting(most) < most
            return most if self._claims else self._fitting(most)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """While entered, all threads run whatever others do: what is measured is kept."""
        with self._lock:
            self._claims += 1
        try:
            yield
        finally:
            with self._lock:
                self._claims -= 1

    def _fitting(self, most: int) -> int:
        return max(1, min(most, math.floor(self.free + _NEARLY)))

    def _end_window(self, *, paused: bool) -> None:
        before = self._preempted
        self._begun, self._preempted = perf_counter(), preempted()
        disturbed = self._preempted - before > _UNDISTURBED
        if paused:
            self._look()
        elif self._watching:
            self.free = self._look()
        elif disturbed:
            self._look()  # to know in the next window what happened since
        self._watching = paused or disturbed

    def _look(self) -> float:
        """How many processors others left free since the last call."""
        looked, used, busy = self._looked, self._used, self._busy
        now = spent(self._ours)
        self._busy = now.busy + now.stolen
        self._looked, self._used = now.clock, now.ours
        others = (self._busy - busy - (self._used - used)) / (self._looked - looked)
        return len(self._ours) - max(0.0, others)


def preempted() -> float:
    """How often our threads had to make way for others so far."""
    if sys.platform == "win32":
        return perf_counter() * 1e3  # it does not count: as if it were all the time
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


processors = Processors()
"""All contexts share it: their passes are the same process's."""
