"""What plain decoding of the same text would have taken, judged by the run that drafted."""

from __future__ import annotations

from dataclasses import dataclass, field

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle

_ENOUGH = 8  # plain steps from which on they alone say what one takes


@dataclass(slots=True)
class _Observed:
    """Some cycles: seconds of the target's passes, beside what the costs say, and of sampling."""

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
    """Follows answers, and says how long plain decoding would have taken for their tokens.

    Plain steps in the answer tell. What looking for a draft took in them is a cost of drafting, and
    so is what the first one after a wider pass loses: neither counts. Where there are too few, all
    passes of an unchanged width tell how the machine's pace differs from the measured costs.

    Attributes:
        costs: what passes cost here, by width and context. None: not known; plain steps are taken
            to be all alike then, and where there are too few nothing is said.
    """

    costs: Costs | None = None
    _before: float = 0.0  # seconds, of the answers before this one that told
    _told: int = 0  # tokens of these, and of those that told nothing
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
        """Add what another followed."""
        self.begin(self.costs)
        seconds, told, untold = other._so_far
        self._before += seconds
        self._told += told
        self._untold += untold

    def _pass(self, n: int, context: int) -> float:
        return self.costs.pass_at(n, context) if self.costs else 1.0

    @property
    def seconds(self) -> float | None:
        """That plain decoding would have taken; None where nothing tells.

        Answers that tell nothing are taken to be like the others.
        """
        seconds, told, untold = self._so_far
        if not told:
            return None if untold else 0.0
        return seconds * (told + untold) / told

    @property
    def _so_far(self) -> tuple[float, int, int]:
        """Seconds for the answers that told, this one included, their tokens, and the others'."""
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
