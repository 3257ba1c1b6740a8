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
_SMALLEST = 10  # bits of a table

_FACTOR, _MIX, _WORD = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 2**64 - 1

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
    one back take constant time. 16 bytes a token, and 12 to 24 for the tables; a hash that two
    runs share costs a look, never a wrong match.
    """

    def __init__(self) -> None:
        self.tokens = array("i")
        self._before = [array("i") for _ in ORDERS]
        self._bits = _SMALLEST
        self._latest = self._empty_tables()

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int] | NDArray[np.int32]) -> None:
        """Add `tokens` at the end."""
        if len(tokens) > _FEW or len(self) + len(tokens) > 1 << self._bits:
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
        for order, before, latest, buckets in zip(
            ORDERS, self._before, self._latest, hashes, strict=True
        ):
            first = max(n, order - 1)
            # Backwards, for of several positions with one hash the earliest says what was before.
            table = np.frombuffer(latest, np.int32)
            table[buckets[first - n :][::-1]] = np.frombuffer(before, np.int32)[first:][::-1]
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
        if not after and not self.tokens:
            return []
        recent = self._recent(after)
        for i in range(len(ORDERS) - 1, -1, -1):
            order = ORDERS[i]
            if len(recent) < order:
                continue
            before = self._before[i]
            end = self._latest[i][self._bucket(recent, order)] if after else before[-1]
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

    def _bucket(self, recent: Sequence[int], order: int) -> int:
        """Where the table has the run whose tokens, backwards, are the first of `recent`."""
        value = 0
        for token in recent[:order]:
            value = (value * _FACTOR + token + 2) & _WORD
        return (((value ^ (value >> 29)) * _MIX) & _WORD) >> (64 - self._bits)

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        last = len(self.tokens) - 1
        if len(self) > 1 << self._bits:
            self._grow()
        recent = self.tokens[-ORDERS[-1] :][::-1]
        shift, value, n = 64 - self._bits, 0, 0
        for order, before, latest in zip(ORDERS, self._before, self._latest, strict=True):
            if last < order - 1:
                before.append(-1)
                continue
            while n < order:
                value = (value * _FACTOR + recent[n] + 2) & _WORD
                n += 1
            bucket = (((value ^ (value >> 29)) * _MIX) & _WORD) >> shift
            before.append(latest[bucket])
            latest[bucket] = last

    def _extend_many(self, tokens: Sequence[int] | NDArray[np.int32]) -> None:
        start = len(self)
        self.tokens.frombytes(np.asarray(tokens, np.int32).tobytes())
        if len(self) > 1 << self._bits:
            self._grow()
        self._link(start)

    def _grow(self) -> None:
        """Larger tables, and all but what `tokens` has too many linked anew."""
        linked = len(self._before[0])
        while len(self) > 1 << self._bits:
            self._bits += 1
        self._latest = self._empty_tables()
        added = self.tokens[linked:]
        del self.tokens[linked:]
        for before in self._before:
            del before[:]
        self._link(0)
        self.tokens += added

    def _link(self, start: int) -> None:
        """Chain the positions from `start` on, which no chain knows yet."""
        for order, before, latest, buckets in zip(
            ORDERS, self._before, self._latest, self._hashes(start), strict=True
        ):
            first = min(max(start, order - 1), len(self))
            known = buckets[first - start :]
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
        """For each order the bucket of the run that ends at each position from `start` on."""
        begin = max(0, start - ORDERS[-1] + 1)
        tokens = np.frombuffer(self.tokens, np.int32)[begin:].astype(np.int64).astype(np.uint64)
        value = np.zeros(len(self) - start, np.uint64)
        buckets: list[Positions] = []
        for n in range(ORDERS[-1]):
            behind = np.zeros(len(value), np.uint64)
            there = tokens[max(0, start - begin - n) : max(0, len(tokens) - n)]
            behind[len(value) - len(there) :] = there
            value = value * np.uint64(_FACTOR) + behind + np.uint64(2)
            if n + 1 in ORDERS:
                mixed = (value ^ (value >> np.uint64(29))) * np.uint64(_MIX)
                buckets.append((mixed >> np.uint64(64 - self._bits)).astype(np.int64))
        return buckets

    def _empty_tables(self) -> list[array[int]]:
        return [array("i", [-1]) * (1 << self._bits) for _ in ORDERS]
