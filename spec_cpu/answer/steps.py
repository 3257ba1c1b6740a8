"""From cycles to steps: tokens become text, and the answer comes to its end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from spec_cpu.cycle.decode import Cycle
from spec_cpu.text.streaming import Origin, Piece, TextStream

Finish = Literal["stop", "length", "context", "interrupted"]


@dataclass(frozen=True, slots=True)
class Step:
    """What one cycle added to the answer.

    Attributes:
        pieces: text that may be shown, each with its origin. It can lag behind the tokens: behind
            an unfinished character, or behind what could become a stop string.
        tokens: the ids, cut after one that ends the answer.
        cycle: acceptance and cost.
        finish: why the answer ends here; None while it goes on.
    """

    pieces: list[Piece]
    tokens: list[int]
    cycle: Cycle
    finish: Finish | None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Steps:
    """Makes steps of the cycles of one answer, up to the one that ends it."""

    def __init__(
        self, stream: TextStream, *, ends: Collection[int], max_tokens: int, room: int
    ) -> None:
        """An answer that is yet empty.

        Args:
            stream: makes text of the tokens, and knows the strings that end an answer.
            ends: tokens that end an answer.
            max_tokens: the most tokens that the answer may have.
            room: tokens that the context has left for the answer.
        """
        self._stream = stream
        self._ends = ends
        self._max_tokens, self._room = max_tokens, room
        self._produced = 0

    def step(self, cycle: Cycle) -> Step:
        """What `cycle` adds to the answer."""
        pieces: list[Piece] = []
        tokens: list[int] = []
        ended = False
        for token, origin in zip(cycle.tokens, origins(cycle), strict=True):
            tokens.append(token)
            pieces += self._stream.push(token, origin)
            ended = token in self._ends or self._stream.stopped
            if ended:
                break
        self._produced += len(tokens)
        finish = _finish(ended, self._produced >= self._max_tokens, self._produced >= self._room)
        if finish:
            pieces += self._stream.finish(origin)
        return Step(pieces, tokens, cycle, finish)


def steps(cycles: Iterable[Cycle], answer: Steps) -> Iterator[Step]:
    """What each of `cycles` adds to `answer`, up to the one that ends it."""
    for cycle in cycles:
        step = answer.step(cycle)
        yield step
        if step.finish:
            return


def _finish(ended: bool, enough: bool, full: bool) -> Finish | None:
    if ended:
        return "stop"
    if enough:
        return "length"
    return "context" if full else None


def origins(cycle: Cycle) -> list[Origin]:
    """Where each token of `cycle` came from."""
    if not cycle.drafted:
        return ["plain"]
    last: Origin = "bonus" if cycle.accepted == cycle.tried else "correction"
    accepted: list[Origin] = ["accepted"] * cycle.accepted
    return [*accepted, last]
