"""Where the end of a text occurred before: an index that grows and shrinks with the text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ORDERS = (2, 4, 8)  # lengths of the runs of tokens that are looked up
LONGEST = 16  # tokens that a match is followed back, at most
_CANDIDATES = 8  # the latest occurrences that are looked at
BREAK = -1  # between texts: no match crosses it
_FEW = 32  # so many tokens are added one by one
_SMALLEST = 2**16  # places of a table: in a text of a session runs hardly ever share one
_BITS = 8 * array("i").itemsize
_PRIME = 998_244_353  # a run, as one number with a digit for each token, modulo this is its hash

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier occurrence of the end of the text: its last position, and how long it is."""

    end: int
    length: int


class SuffixIndex:
    """Tokens, and for the runs of 2, 4 and 8 that end at each the last such run before it.

    Hash chains, as in LZ77 (Deutsch 1996, RFC 1951, section 4): a table has the latest position of
    each hash, and each position the one before it with the same hash. So adding a token and taking
    one back take constant time. 16 bytes a token, and for the tables 12 to 24, or 768 KB if that is
    more; a hash that two runs share costs a look, never a wrong match.
    """

    def __init__(self) -> None:
        self.tokens = array("i")
        self._before = [array("i") for _ in ORDERS]
        self._places = _SMALLEST
        self._latest = self._empty_tables()

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int] | NDArray[np.int32]) -> None:
        """Add `tokens` at the end."""
        if len(tokens) > _FEW or len(self) + len(tokens) > self._places:
            self._extend_many(tokens)
            return
        for token in tokens:
            self._append(token)

    def separate(self) -> None:
        """What follows is another text."""
        self._append(BREAK)

    def truncate(self, n: int) -> None:
        """Forget all but the first `n` tokens."""
        if n >= len(self):
            return
        hashes = self._hashes(n)
        for order, before, latest, places in zip(
            ORDERS, self._before, self._latest, hashes, strict=True
        ):
            first = max(n, order - 1)
            # Backwards, for of several positions with one hash the earliest says what was before.
            table = np.frombuffer(latest, np.int32)
            table[places[first - n :][::-1]] = np.frombuffer(before, np.int32)[first:][::-1]
            del before[n:]
        del self.tokens[n:]

    def shared_prefix(self, start: int, tokens: Sequence[int]) -> int:
        """How many of `tokens` stand from `start` on."""
        mine = np.frombuffer(self.tokens, np.int32)[start : start + len(tokens)]
        same = mine == np.asarray(tokens[: len(mine)], np.int32)
        return len(mine) if same.all() else int(same.argmin())

    def matches(self, after: Sequence[int] = ()) -> list[Match]:
        """The latest occurrences of the longest run that occurred before: of 8 or more tokens,
        else of 4 or more, else of 2 or 3; none if there is none.

        Args:
            after: tokens that are taken to follow the text: the run ends with them.
        """
        if not after and (not self.tokens or self._before[0][-1] < 0):
            return []  # no longer run occurred where no pair did
        recent = self._recent(after)
        for i in range(len(ORDERS) - 1, -1, -1):
            order = ORDERS[i]
            if len(recent) < order:
                continue
            before = self._before[i]
            end = self._latest[i][self._place(recent[order - 1 :: -1])] if after else before[-1]
            found: list[Match] = []
            for _ in range(_CANDIDATES):
                if end < 0:
                    break
                length = self._length(end, recent)
                if length >= order:
                    found.append(Match(end, length))
                end = before[end]
            if found:
                return found
        return []

    def _recent(self, after: Sequence[int]) -> list[int]:
        """The end of the text and `after`, backwards, as far as one text goes."""
        recent = [*after[-LONGEST:]][::-1]
        if len(recent) < LONGEST:
            recent += self.tokens[-(LONGEST - len(recent)) :][::-1]
        return recent[: recent.index(BREAK)] if BREAK in recent else recent

    def _length(self, end: int, recent: Sequence[int]) -> int:
        tokens = self.tokens
        n, most = 0, min(len(recent), end + 1)
        while n < most and tokens[end - n] == recent[n]:
            n += 1
        return n

    def _place(self, run: Sequence[int]) -> int:
        """Where a table has `run`."""
        return int.from_bytes(array("i", run), "little") % _PRIME % self._places

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        if len(self.tokens) > self._places:
            self._grow()
        last, run = len(self.tokens) - 1, self.tokens[-ORDERS[-1] :]
        value, n, places = int.from_bytes(run, "little"), len(run), self._places
        for order, before, latest in zip(ORDERS, self._before, self._latest, strict=True):
            if n < order:
                before.append(-1)
                continue
            place = (value >> _BITS * (n - order)) % _PRIME % places
            before.append(latest[place])
            latest[place] = last

    def _extend_many(self, tokens: Sequence[int] | NDArray[np.int32]) -> None:
        start = len(self)
        self.tokens.frombytes(np.asarray(tokens, np.int32).tobytes())
        if len(self) > self._places:
            self._grow()
        self._link(start)

    def _grow(self) -> None:
        """Larger tables, and all but what `tokens` has too many linked anew."""
        linked = len(self._before[0])
        while len(self) > self._places:
            self._places *= 2
        self._latest = self._empty_tables()
        added = self.tokens[linked:]
        del self.tokens[linked:]
        for before in self._before:
            del before[:]
        self._link(0)
        self.tokens += added

    def _link(self, start: int) -> None:
        """Chain the positions from `start` on, which no chain knows yet."""
        for order, before, latest, places in zip(
            ORDERS, self._before, self._latest, self._hashes(start), strict=True
        ):
            first = min(max(start, order - 1), len(self))
            known = places[first - start :]
            by_bucket = known.argsort(kind="stable")
            grouped = known[by_bucket]
            new_group = np.append(True, grouped[1:] != grouped[:-1])[: len(grouped)]
            table = np.frombuffer(latest, np.int32)
            previous = np.empty(len(grouped), np.int32)
            previous[1:] = (by_bucket + first)[:-1]
            previous[new_group] = table[grouped[new_group]]
            links = np.full(len(self) - start, -1, np.int32)
            links[first - start :][by_bucket] = previous
            before.frombytes(links.tobytes())
            table[known] = np.arange(first, len(self), dtype=np.int32)

    def _hashes(self, start: int) -> list[Positions]:
        """For each order the place of the run that ends at each position from `start` on."""
        begin = max(0, start - ORDERS[-1] + 1)
        tokens = np.frombuffer(self.tokens, np.uint32)[begin:].astype(np.uint64)
        value = np.zeros(len(self) - start, np.uint64)
        places: list[Positions] = []
        for n in range(ORDERS[-1]):
            behind = np.zeros(len(value), np.uint64)
            there = tokens[max(0, start - begin - n) : max(0, len(tokens) - n)]
            behind[len(value) - len(there) :] = there
            value = (value * np.uint64(2**_BITS % _PRIME) + behind) % np.uint64(_PRIME)
            if n + 1 in ORDERS:
                places.append((value % np.uint64(self._places)).astype(np.int64))
        return places

    def _empty_tables(self) -> list[array[int]]:
        return [array("i", [-1]) * self._places for _ in ORDERS]
