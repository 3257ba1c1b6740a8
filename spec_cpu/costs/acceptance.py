"""How often a draft's tokens are accepted, as far as that is known before an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

_ASSUMED = (0.6, 0.7, 0.8)  # of a smaller model of the same family on common text
_TEXTS = 0.1  # that texts differ by
ENOUGH = 30  # tokens tried, before a share of them says anything
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
    if tried < ENOUGH:
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
    basis = f"by the head's own file: {held_out:.0%} of text that was new to it; answers reach less"
    return Acceptance(low, likely, high, basis)


def too_few(seen: float | None, needed: float | None) -> str:
    """Why a draft is not asked, in a person's words: no share is told that nobody measured.

    Args:
        seen: the share of its guesses that is expected to be accepted, by passes that were made.
        needed: the share from which on it pays; None: from none.
    """
    if needed is None:
        return "a guess costs more here than it brings, even if it is accepted"
    if seen is None:
        return f"guesses of the draft pay here once {needed:.0%} are accepted; none was tried yet"
    if seen >= needed:
        return f"too few guesses are accepted ({seen:.0%}) for what they cost here"
    return f"too few guesses are accepted: about {seen:.0%}, and they pay here from {needed:.0%} on"
