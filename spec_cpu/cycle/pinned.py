"""The policy of a k that was given: it chooses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.cycle.calibration import Calibration, Open
from spec_cpu.cycle.policy import Outcome

_EXPECTED, _LEARNT = 0.5, 0.1  # of a chain: accepted at first, and of each new one


class Pinned:
    """Always k nodes, or what there is room for, whatever that costs.

    Where tokens are drawn from a draft, the tree of what was looked up takes the place of a chain
    if it is expected to bring more tokens than chains did lately.
    """

    reason = None
    hopeless = False
    floor = 0.0
    rests = False

    def __init__(self, k: int) -> None:
        self.calibration = Calibration()
        self.most = k
        self._brought = 1.0 + _EXPECTED * k  # tokens of a cycle with a chain, lately

    def begin(self) -> None:
        """It goes by what is found in the text."""

    def verified(self, chances: Sequence[float]) -> int:
        return len(chances)

    def worth_pass(self, chances: Sequence[float], layer: Sequence[Open], layers: int) -> int:
        return len(layer)

    def draws(self, chances: Sequence[float], room: int) -> int:
        return min(self.most, room) if 1.0 + sum(chances) <= self._brought else 0

    def worth_another(self, drafted: int, reach: float, sure: float | None) -> bool:
        return True

    def observe(self, outcome: Outcome) -> None:
        if outcome.drawn:
            self._brought += _LEARNT * (outcome.tokens - self._brought)
