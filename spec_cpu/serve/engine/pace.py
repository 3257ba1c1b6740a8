"""How much of a prompt is read between two cycles of the answers under way."""

from __future__ import annotations

_FIRST = 16  # tokens of the first part, before any was timed
_LEARNT = 0.3  # of a new observation, where a mean is kept


class ReadingPace:
    """Sizes of parts such that answers under way wait no longer than they should."""

    def __init__(self, max_gap: float, *, most: int) -> None:
        """Parts and a cycle beside them should take `max_gap` seconds at most.

        Args:
            most: tokens of a part, at most.
        """
        self._max_gap = max_gap
        self._most = most
        self._cycle = 0.0  # seconds
        self._token: float | None = None

    def tokens(self, *, beside_texts: bool) -> int:
        """Tokens of the next part."""
        if not beside_texts:
            return self._most
        if self._token is None:
            return min(_FIRST, self._most)
        fit = (self._max_gap - self._cycle) / self._token
        return max(1, min(self._most, int(fit)))

    def took(self, tokens: int, seconds: float) -> None:
        """A part of so many tokens was read."""
        if tokens:
            each = seconds / tokens
            known = each if self._token is None else self._token
            self._token = known + _LEARNT * (each - known)

    def cycle_took(self, seconds: float) -> None:
        """A cycle took so long."""
        self._cycle += _LEARNT * (seconds - self._cycle) if self._cycle else seconds
