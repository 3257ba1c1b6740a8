"""How far something is, told to a person who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_cpu.cost_measure import MeasureProgress
    from spec_cpu.llama.sequence import PrefillProgress

Progress = Callable[[str, int, int | None], None]
"""Told (what is being done, how much is done, out of how much; None: it is not known)."""


def of_tokens(progress: Progress | None, label: str) -> PrefillProgress | None:
    """What passes over a prompt tell, under this label."""
    if progress is None:
        return None
    return lambda done, total: progress(label, done, total)


def of_seconds(progress: Progress | None, label: str) -> MeasureProgress | None:
    """What a measurement tells, in milliseconds, under this label."""
    if progress is None:
        return None
    return lambda spent, budget: progress(label, round(1000 * spent), round(1000 * budget))
