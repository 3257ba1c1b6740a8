"""How many processors other programs leave to this process just now."""

from __future__ import annotations

import math
from time import perf_counter, process_time

import psutil

from spec_cpu import machine

_WINDOW = 0.25  # seconds: Linux counts a processor's time in hundredths
_NEARLY = 0.4  # of a processor: a browser that takes so much leaves it to us


class Processors:
    """Looks now and then at how busy the processors are that this process may run on.

    Attributes:
        free: how many of them others did not use when it last looked, possibly a fraction.
    """

    def __init__(self) -> None:
        self._ours = machine.allowed_processors()
        self.free = float(len(self._ours))
        self._look()

    def threads(self, most: int) -> int:
        """How many threads, up to `most`, can run side by side.

        Threads that wait for each other get less done than one alone where another program holds
        one of them up: a processor that is taken is left out.
        """
        if perf_counter() - self._looked > _WINDOW:
            used, seconds = self._used, perf_counter() - self._looked
            busy = self._look()
            own = (self._used - used) / seconds
            self.free = len(self._ours) - max(0.0, busy - own)
        return max(1, min(most, math.floor(self.free + _NEARLY)))

    def _look(self) -> float:
        """The processors that were busy, with us or others, since the last call."""
        percent = psutil.cpu_percent(percpu=True)
        self._looked, self._used = perf_counter(), process_time()
        return sum(percent[i] for i in self._ours if i < len(percent)) / 100


processors = Processors()
"""All contexts share it: their passes are the same process's."""
