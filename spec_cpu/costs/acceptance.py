"""How often a draft's tokens are accepted, as far as that is known before an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

_ASSUMED = (0.6, 0.7, 0.8)  # of a smaller model of the same family on common text
_TEXTS = 0.1  # that texts differ by
_ENOUGH = 30  # tokens tried, before a share of them says anything
# What a head finds in cycles, in shares of what it finds at every token of a held-out text: a cycle
# begins where it is hard.
_IN_CYCLES = (0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A chance from 0 to 1, between two others.

    Attributes:
        basis: what it follows from, in a person's words. `known`: is that more than a guess?
    """

    low: float
    likely: float
    high: float
    basis: str
    known: bool = True


def assumed() -> Acceptance:
    """Of a draft of which nothing is known."""
    low, likely, high = _ASSUMED
    return Acceptance(
        low, likely, high, "assumed, as of a smaller model of the same family", known=False
    )


def of_runs(accepted: float, tried: float) -> Acceptance | None:
    """From earlier answers, in which `accepted` of `tried` tokens stayed; None: too few."""
    if tried < _ENOUGH:
        return None
    share = accepted / tried
    spread = max(_TEXTS, 2.0 * sqrt(share * (1.0 - share) / tried))
    low, high = max(0.0, share - spread), min(1.0, share + spread)
    return Acceptance(low, share, high, f"as in earlier answers here ({tried:,.0f} tokens tried)")


def of_card(by_depth: Sequence[float]) -> Acceptance | None:
    """Of a head, from what its file says of held-out text, by depth; None: it says nothing."""
    if not by_depth:
        return None
    held_out = sum(by_depth) / len(by_depth)
    low, likely, high = (share * held_out for share in _IN_CYCLES)
    basis = f"by the head's own file: {held_out:.0%} of held-out text, of which answers reach less"
    return Acceptance(low, likely, high, basis)
