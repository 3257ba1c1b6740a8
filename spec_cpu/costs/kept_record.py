"""What sources brought in earlier answers, kept on disk: who takes part in the next one.

And how many of their tokens were accepted, which a plan goes by.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from spec_cpu import defaults
from spec_cpu.cache import write_text

_MOST = 500.0  # tokens that a record goes by: what was long ago counts less
_ENOUGH = 20.0  # tokens from which on it says anything
_WORTH = 1.1  # tokens in a plain step's time: less is lost again beside those cycles
_SHARE = 0.005  # of the tokens decoded without it, in plain steps, that a try may cost
_TRY = 1.25  # plain steps that it may
_TRIED = 2000.0  # drafted tokens that an acceptance goes by: what was long ago counts less


class KeptRecord:
    """Of each source the tokens that its cycles brought, and how many plain steps they took.

    Even one that waits costs something, and finding out in each answer anew what it is good for
    costs more. So one that did not pay is left out, until half a percent of what was decoded
    without it comes to what a try may cost.
    """

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        """Read the record at `path`; one that is damaged, old or missing is empty.

        Args:
            anew: forget who paid. What was accepted does not depend on what passes cost, and stays.
        """
        self._path = path
        self._anew = anew
        self._brought = {} if anew else _read(path, "brought", 3)  # tokens, steps, saved for a try
        self._accepted = _read(path, "accepted", 2)  # accepted, tried
        self._changed: set[str] = set()
        self._tried: set[str] = set()

    def pays(self, name: str) -> bool:
        """Did the drafts of `name` pay, or is that not known yet?"""
        tokens, steps, _ = self._of(name)
        return tokens < _ENOUGH or tokens >= _WORTH * steps

    def due(self, name: str) -> bool:
        """Is it to take part in the next answer?"""
        return self.pays(name) or self._of(name)[2] >= _TRY

    def advance(self, name: str) -> float | None:
        """Plain steps that it may lose at first; None: what is usual."""
        return None if self.pays(name) else _TRY

    def took_part(self, name: str, tokens: float, steps: float) -> None:
        """Its cycles of an answer brought so many tokens, in the time of so many plain steps."""
        before = self._of(name)
        tokens, steps = before[0] + tokens, before[1] + steps
        share = min(1.0, _MOST / max(tokens, 1.0))
        self._brought[name] = [tokens * share, steps * share, 0.0]
        self._changed.add(name)

    def left_out(self, name: str, tokens: int) -> None:
        """So many tokens were decoded without it."""
        self._of(name)[2] += _SHARE * tokens
        self._changed.add(name)

    def tried(self, name: str, accepted: int, tried: int) -> None:
        """Of so many of its tokens that were tried in an answer so many were accepted."""
        if not tried:
            return
        a, n = self._accepted.get(name, [0.0, 0.0])
        share = min(1.0, _TRIED / (n + tried))
        self._accepted[name] = [(a + accepted) * share, (n + tried) * share]
        self._tried.add(name)

    def accepted(self, name: str) -> tuple[float, float]:
        """Tokens of `name` that were accepted in earlier answers, and that were tried."""
        a, n = self._accepted.get(name, [0.0, 0.0])
        return a, n

    def write(self) -> None:
        """Keep what changed, if that is possible: else the next session finds out again.

        What others wrote meanwhile of other sources stays.
        """
        if not self._changed and not self._tried:
            return
        others = {} if self._anew else _read(self._path, "brought", 3)
        changed = {name: self._brought[name] for name in self._changed}
        tried = {name: self._accepted[name] for name in self._tried}
        record = {
            "written": time.time(),
            "brought": {**others, **changed},
            "accepted": {**_read(self._path, "accepted", 2), **tried},
        }
        with contextlib.suppress(OSError):
            write_text(self._path, json.dumps(record))

    def _of(self, name: str) -> list[float]:
        return self._brought.setdefault(name, [0.0, 0.0, 0.0])


def _read(path: Path, what: str, numbers: int) -> dict[str, list[float]]:
    """`numbers` of each name, kept at `path`; nothing if that is damaged, old or missing."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        record = json.loads(path.read_text(encoding="utf-8"))
        if 0 <= time.time() - record["written"] < defaults.COSTS_AGE:
            found = {name: [float(x) for x in one] for name, one in record[what].items()}
            return {name: one for name, one in found.items() if len(one) == numbers}
    return {}
