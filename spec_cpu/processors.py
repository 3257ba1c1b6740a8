"""How many processors other programs leave to this process just now."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import perf_counter, process_time

import psutil

from spec_cpu import machine

_WINDOW = 0.25  # seconds: Linux counts a processor's time in hundredths
_PAUSE = 5.0  # seconds since the last look, after which it says nothing of how it is now
_NEARLY = 0.4  # of a processor: a browser that takes so much leaves it to us


class Processors:
    """Looks now and then at how busy the processors are that this process may run on.

    Attributes:
        free: how many of them others did not use when it last looked, possibly a fraction.
    """

    def __init__(self) -> None:
        self._ours = machine.allowed_processors()
        self.free = float(len(self._ours))
        self._lock = Lock()
        self._claimed = 0
        self._look()

    def threads(self, most: int) -> int:
        """How many threads, up to `most`, can run side by side.

        Threads that wait for each other get less done than one alone where another program holds
        one of them up: a processor that is taken is left out.
        """
        with self._lock:
            since = perf_counter() - self._looked
            if since > _PAUSE:
                self._look()
            elif since > _WINDOW:
                busy, used = self._busy, self._used
                self._look()
                others = (self._busy - busy - (self._used - used)) / since
                self.free = len(self._ours) - max(0.0, others)
            return most if self._claimed else max(1, min(most, math.floor(self.free + _NEARLY)))

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """While entered, all threads run whatever others do: what is measured is kept."""
        self._claimed += 1
        try:
            yield
        finally:
            self._claimed -= 1

    def _look(self) -> None:
        """Seconds that the processors were busy so far, with us or others, and with us."""
        times = psutil.cpu_times(percpu=True)
        ours = [times[i] for i in self._ours if i < len(times)]
        self._busy = sum(sum(t) - t.idle - getattr(t, "iowait", 0.0) - _guests(t) for t in ours)
        self._looked, self._used = perf_counter(), process_time()


def _guests(times: object) -> float:
    """Seconds of virtual machines, which Linux counts twice."""
    return getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)


processors = Processors()
"""All contexts share it: their passes are the same process's."""
