"""What speculation may lose, so that it is never much slower than plain decoding."""

from __future__ import annotations

from math import ceil

_START = 2.5  # plain steps in it at first
_MOST = 100.0  # plain steps that it holds: old gains do not pay for all that is lost now
_INTEREST = 0.01  # of plain decoding's time, that drafting may lose


class Purse:
    """The seconds that a run is ahead of plain decoding, and a little more to explore with.

    The little more: 1 % of plain decoding's time, and 2.5 plain steps to begin with. As long as
    only that is drafted whose rejection as a whole it bears, n tokens take no longer than 1.01 n +
    2.5 plain steps would (by the corrected costs), which is 0.98 of plain decoding's speed from 256
    tokens on, whatever the text does. This is the rule of conservative bandits with plain decoding
    as the known arm (Wu et al. 2016, "Conservative Bandits"). Of what the run is ahead the purse
    holds 100 plain steps at most: where drafting paid once, not all of that is lost until it is
    given up.

    Several drafters have a purse each, with the same to begin with and a share of the 1 %. A purse
    is settled with what its own drafter drafted, so that what one earned or lost is not another's
    to squander or to wait for. Together they take no longer than 1.01 n + 2.5 plain steps for each
    of them: two that are always wrong reach 0.98 of plain decoding's speed at 500 tokens.

    Attributes:
        seconds: what may be lost.
    """

    def __init__(self, plain: float, share: float = 1.0, advance: float | None = None) -> None:
        """Begin with an advance.

        Args:
            plain: seconds of a plain step.
            share: of the 1 %.
            advance: plain steps in it at first; default: 2.5.
        """
        self._interest = share * _INTEREST
        self._start = _START if advance is None else advance
        self.seconds = self._start * plain

    def bears(self, loss: float) -> bool:
        """May so many seconds be lost?"""
        return loss <= self.seconds

    def steps_until(self, loss: float, plain: float) -> int:
        """Plain steps until it bears `loss`."""
        return max(0, ceil((loss - self.seconds) / (self._interest * plain)))

    def settle(self, plain: float, tokens: int, seconds: float) -> None:
        """A cycle brought `tokens` tokens in `seconds`; a plain step takes `plain`."""
        self.seconds += (1.0 + self._interest) * plain * tokens - seconds
        self.seconds = min(self.seconds, _MOST * plain)

    def forget_gains(self, plain: float) -> None:
        """Keep no more than at first: what was gained is not spent on exploring."""
        self.seconds = min(self.seconds, self._start * plain)
