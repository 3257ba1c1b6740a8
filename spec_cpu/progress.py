"""How far something is, told to a person who waits for it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Told (what is being done, how much is done, out of how much; None: it is not known)."""

PrefillProgress = Callable[[int, int], None]
"""Told (tokens evaluated, tokens in all) after each batch of a prompt."""

MeasureProgress = Callable[[float, float], None]
"""Told (seconds spent, seconds allowed)."""


def of_tokens(progress: Progress | None, label: str) -> PrefillProgress | None:
    """`progress` for the passes over a prompt, under this label."""
    if progress is None:
        return None
    return lambda done, total: progress(label, done, total)


def of_seconds(progress: Progress | None, label: str) -> MeasureProgress | None:
    """`progress` for a measurement, in milliseconds, under this label."""
    if progress is None:
        return None
    return lambda spent, budget: progress(label, round(1000 * spent), round(1000 * budget))
