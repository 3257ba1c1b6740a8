"""What plain decoding of the same text would have taken, judged by the run that drafted."""

from __future__ import annotations

from dataclasses import dataclass, field

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle

_ENOUGH = 8  # plain steps: with this many no other passes are looked at


@dataclass(slots=True)
class _Observed:
    """Sums over cycles: target passes as timed and as the costs give them, and sampling."""

    cycles: int = 0
    target: float = 0.0
    given: float = 0.0
    sample: float = 0.0
    rows: int = 0

    def add(self, cycle: Cycle, given: float) -> None:
        self.cycles += 1
        self.target += cycle.seconds.target
        self.given += given
        self.sample += cycle.seconds.sample
        self.rows += cycle.rows


@dataclass(slots=True)
class PlainTime:
    """Estimates how long plain decoding would have taken for the tokens of answers.

    The plain steps of an answer show it. Two things are left out, for plain decoding would not have
    them: the time that a plain step spends looking for a draft, and what the first plain step after
    a wider pass loses. With too few plain steps, all passes as wide as the one before show how much
    faster or slower the machine is than the measured costs say.

    Attributes:
        costs: what passes cost here, by width and context. None: not known. Then all plain steps
            are taken to cost the same, and with too few of them there is no estimate.
    """

    costs: Costs | None = None
    _before: float = 0.0  # seconds, of earlier answers with an estimate
    _told: int = 0  # tokens of those, and of answers without one
    _untold: int = 0
    _tokens: int = 0  # of this answer
    _given: float = 0.0  # for the plain passes of them all
    _plain: _Observed = field(default_factory=_Observed)
    _steady: _Observed = field(default_factory=_Observed)
    _drafted: int | None = None  # in the cycle before

    def begin(self, costs: Costs | None) -> None:
        """Another answer begins."""
        self._before, self._told, self._untold = self._so_far
        self.costs, self._drafted = costs, None
        self._tokens, self._given = 0, 0.0
        self._plain, self._steady = _Observed(), _Observed()

    def add(self, cycle: Cycle, kept: int) -> None:
        """Count a cycle of which `kept` tokens became text."""
        self._tokens += kept
        self._given += kept * self._pass(1, cycle.context + kept // 2)
        steady, n = cycle.drafted == self._drafted, 1 + cycle.drafted
        if steady and n == 1:
            self._plain.add(cycle, self._pass(1, cycle.context))
        if steady and self.costs and n <= len(self.costs.passes):
            self._steady.add(cycle, self._pass(n, cycle.context))
        self._drafted = cycle.drafted

    def merge(self, other: PlainTime) -> None:
        """Add the answers of another."""
        self.begin(self.costs)
        seconds, told, untold = other._so_far
        self._before += seconds
        self._told += told
        self._untold += untold

    def _pass(self, n: int, context: int) -> float:
        return self.costs.pass_at(n, context) if self.costs else 1.0

    @property
    def seconds(self) -> float | None:
        """Seconds that plain decoding would have taken; None if there is no estimate.

        An answer without an estimate is taken to be like the others.
        """
        seconds, told, untold = self._so_far
        if not told:
            return None if untold else 0.0
        return seconds * (told + untold) / told

    @property
    def _so_far(self) -> tuple[float, int, int]:
        """Seconds and tokens of answers with an estimate, this one included; others' tokens."""
        now = self._seconds
        if now is None:
            return self._before, self._told, self._untold + self._tokens
        return self._before + now, self._told + self._tokens, self._untold

    @property
    def _seconds(self) -> float | None:
        """The same for this answer alone."""
        if not self._tokens:
            return 0.0
        seen = self._plain if self._plain.cycles >= _ENOUGH or not self.costs else self._steady
        if not seen.cycles:
            return None
        passes = self._given * seen.target / seen.given
        return passes + self._tokens * seen.sample / seen.rows
