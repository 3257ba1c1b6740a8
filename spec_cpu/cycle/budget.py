"""What drafting may lose, so that it is never much slower than plain decoding."""

from __future__ import annotations

from dataclasses import dataclass, field

# Plain steps that may be lost at first. Without, answers of 64 tokens from look-ups bring 1.09 in
# place of 1.65 on a small target.
_ADVANCE = 1.5
_INTEREST = 0.01  # of plain decoding's time, that may be lost


@dataclass(slots=True)
class Budget:
    """Seconds that may be lost.

    The seconds that the run is ahead of plain decoding, and a little more: 1 % of plain decoding's
    time, and an advance. Only that is tried whose failure it bears, so that n tokens take no longer
    than 1.01 n + 2.5 plain steps would, whatever the text does: 0.98 of plain decoding's speed from
    256 tokens on. This is the rule of conservative bandits with plain decoding as the known arm (Wu
    et al. 2016, "Conservative Bandits"). Of what the run is ahead it holds 100 plain steps: where
    drafting paid once, not all of that is lost until it is given up.

    Where there is a draft that takes passes, half of the little more is for finding out whether it
    pays. That neither spends what drafting gained, nor keeps what is looked up from being tried.

    Attributes:
        ahead: seconds that may be lost, beside `spare`; below 0 that is lost in part.
        spare: seconds that may be lost by what is not expected to pay.
    """

    plain: float
    explore: float  # plain steps of the advance for a draft that takes passes; 0: there is none
    ahead: float = field(init=False)
    spare: float = field(init=False)
    _withheld: float = 0.0

    def __post_init__(self) -> None:
        self.ahead, self.spare = _ADVANCE * self.plain, self.explore * self.plain

    @property
    def bears(self) -> float:
        """Seconds that may be lost by what is expected to pay."""
        return self.ahead + self.spare - self._withheld

    def share(self, plain: float | None) -> None:
        """Others share the passes, so that `plain` is what a plain step takes of them; None: no.

        The advance is of such steps then. Were it not, eight texts of 50 tokens each would spend a
        tenth of their time on finding out what pays.
        """
        advance = _ADVANCE + self.explore
        self._withheld = 0.0 if plain is None else advance * max(0.0, self.plain - plain)

    def explores(self, loss: float) -> bool:
        """May so much be lost by what is not?"""
        return loss <= min(self.spare, self.bears)

    def settle(self, plain: float, tokens: int, seconds: float) -> None:
        """A cycle brought `tokens` in `seconds`."""
        little = _INTEREST * plain * tokens
        half = little / 2.0 if self.explore else 0.0
        self.spare += half
        self.ahead = min(self.ahead + plain * tokens - seconds + little - half, 100.0 * plain)

    def explored(self, lost: float) -> None:
        """In that cycle something was tried, beside what was expected without which it `lost` so
        much; or gained, if below 0: then it may go on."""
        moved = min(self.spare, lost)
        self.spare -= moved
        self.ahead += moved
