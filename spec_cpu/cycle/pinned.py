"""The schedule of a k that was given: it chooses nothing, and promises what blocks brought."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.cycle.schedule_base import Outcome, reaches
from spec_cpu.draft.tree import TokenTree

_EXPECTED, _LEARNT = 0.5, 0.1  # of a block: accepted at first, and of each new one


class Pinned:
    """Always drafts k tokens, or what there is room for: no choice and no cut.

    Of several pinned drafters the one that promises most tokens drafts, whatever its time: a
    look-up promises what it says of its tree, a model what its blocks brought lately.
    """

    reason = None
    by_confidence = False
    hopeless = False

    def __init__(self, k: int) -> None:
        self._k = k
        self._brought = 1.0 + _EXPECTED * k  # tokens a cycle, lately
        self.promise = self._brought

    def next_k(self, room: int) -> int:
        self.promise = self._brought
        return max(0, min(self._k, room))

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool:
        return True

    def worth_pass(self, chances: Sequence[float], layer: Sequence[float]) -> int:
        return len(layer)

    def worth_at_once(self, chances: Sequence[float]) -> bool:
        return True

    def acceptance(self, confidence: float) -> float:
        return confidence

    def worth(self, tree: TokenTree) -> int:
        if tree.confidence:
            self.promise = 1.0 + sum(reaches(tree, self.acceptance))
        return len(tree)

    def observe(self, outcome: Outcome) -> None:
        if outcome.own and outcome.drafted:
            self._brought += _LEARNT * (outcome.accepted + 1 - self._brought)
