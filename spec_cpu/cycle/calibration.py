"""How likely a proposed token is accepted: by who proposed it, how sure it was, and the record."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from math import isclose

Said = Sequence[tuple[str, float]]
"""Who proposed a token, and how sure each was of it: a chance from 0 to 1."""

Open = tuple[float, float]
"""Of a node that may be extended: its chance, and that of the best known to follow it, if it is
accepted."""

_KEPT = 0.97  # of the record, from one outcome that was expected to the next
_COUNT = 2.0  # accepted tokens that a source's own word counts for
# One bin for all brings 4 to 5 % less where tokens are drawn, 1 % less where they are looked up.
_EDGES = [2.0**n / (1.0 + 2.0**n) for n in range(-7, 5)]  # of the bins: doublings of the odds
_CERTAIN = 0.995  # nothing is surer
_DRAWN = 0.6  # the chance that a drawn token is accepted, before any was
_DRAWN_KEPT = 0.95  # of the record of drawn chains, from one token that was tried to the next
_FIRST = 0.45  # the chance of the best token after a node, before any pass was made
# Of it, from one cycle with passes to the next. Were none forgotten, 4 % would be lost where a
# draft stops being right after 2,500 tokens.
_PASSES_KEPT = 0.9


class Calibration:
    """Decayed counts of tokens, expected and accepted, by source and by how sure it was.

    How sure sources are is wrong by a factor that depends on the text, the temperature and the
    source. So outcomes are kept in bins of the odds, and a chance is scaled by accepted / expected
    of its bin. An outcome makes the record forget as much as was expected of it: else the many
    unlikely tokens after a node would make it forget the likely one.

    Of sources that agree the best chance counts. To take them for independent, or to keep a record
    of their agreeing, brings nothing more: they look at the same text.

    Attributes:
        passes: what passes of a draft find.
    """

    def __init__(self) -> None:
        self.passes = PassRecord()
        self._bins: dict[tuple[str, int], list[float]] = {}  # expected, accepted

    def chance(self, said: Said) -> float:
        """That a token is accepted where it is reached: by the source that makes most of it."""
        return max(self._one(name, sure) for name, sure in said)

    def learn(self, said: Said, accepted: bool) -> None:
        """Such a token was reached, scored or not, and is the text's, or is not."""
        for name, sure in said:
            self._count(name, sure, accepted)

    def _one(self, source: str, sure: float) -> float:
        record = self._bins.get((source, bisect(_EDGES, sure)))
        if record is None:
            return min(sure, _CERTAIN)
        return min(_CERTAIN, sure * record[1] / record[0])

    def _count(self, source: str, sure: float, accepted: bool) -> None:
        key = (source, bisect(_EDGES, sure))
        record = self._bins.get(key)
        if record is None:
            record = self._bins[key] = [_COUNT, _COUNT]
        kept = 1.0 - (1.0 - _KEPT) * sure
        record[0] = kept * record[0] + sure
        record[1] = kept * record[1] + accepted


class ChainRecord:
    """How often tokens of drawn chains were accepted: the first one, and one after another.

    A cycle begins where it is hard, so that a first token is accepted less often.
    """

    def __init__(self) -> None:
        self._first = [0.0, 0.0]  # accepted and tried
        self._later = [0.0, 0.0]

    @property
    def chances(self) -> tuple[float, float]:
        """Of a first token, and of one that follows another that is accepted."""
        (a, n), (b, m) = self._first, self._later
        first = (a + _COUNT * _DRAWN) / (n + _COUNT)
        return first, (b + _COUNT * first) / (m + _COUNT)

    def count(self, drafted: int, accepted: int) -> None:
        """A chain of `drafted` tokens was scored, of which `accepted` stayed."""
        tried = min(accepted + 1, drafted)
        for record, right, n in (
            (self._first, min(accepted, 1), min(tried, 1)),
            (self._later, max(accepted - 1, 0), max(tried - 1, 0)),
        ):
            kept = _DRAWN_KEPT**n
            record[0], record[1] = kept * record[0] + right, kept * record[1] + n


class PassRecord:
    """What passes of a draft find after a node.

    Attributes:
        usual: the chance of the best token. Its siblings are not foreseen: that brings nothing.
    """

    def __init__(self) -> None:
        self.usual = _FIRST
        self._weight = 1.0
        self._counted = False

    @property
    def seen(self) -> float | None:
        """The chance of the best token after a node; None before any pass was made."""
        return self.usual if self._counted else None

    def count(self, reach: float, chance: float) -> None:
        """The best that a pass found after a node that is reached so has such a chance."""
        self._weight += reach
        self._counted = True
        self.usual += reach / self._weight * (chance - self.usual)

    def fade(self) -> None:
        """A cycle with passes has ended."""
        self._weight *= _PASSES_KEPT

    def foreseen(self, chances: Sequence[float], layer: Sequence[Open], layers: int) -> list[float]:
        """The chances of all nodes, best first, once a pass was made for `layer`.

        Args:
            chances: of the nodes there are.
            layers: how deep the pass sees.
        """
        found, best = [*chances], self.usual
        for reach, known in layer:
            if best > known:  # it will be surer of something than of what is known
                child = reach * known
                same = (i for i, chance in enumerate(found) if isclose(chance, child))
                if (at := next(same, None)) is not None:
                    del found[at]
                new = reach
            else:  # or of the same, if that is right
                new = reach * (1.0 - known)
            found += [new * best**depth for depth in range(1, layers + 1)]
        return sorted(found, reverse=True)
