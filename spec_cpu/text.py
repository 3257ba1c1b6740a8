"""From committed tokens to text that may be shown: whole characters, nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spec_cpu.llama.vocab import Detokenizer, Vocab

Origin = Literal["accepted", "correction", "bonus", "plain"]
"""Where a token came from: a draft that stayed, what replaced one, what followed a whole block that
stayed, or a step without a draft."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text, and where its token came from."""

    text: str
    origin: Origin


class TextStream:
    """Detokenizes an answer and ends it at a stop string.

    Text that could be the beginning of a stop string is held back until it is known.
    """

    def __init__(self, vocab: Vocab, stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(vocab)
        self._stops = [stop for stop in stops if stop]
        self._held: list[Piece] = []
        self.stopped = False

    def push(self, token: int, origin: Origin) -> list[Piece]:
        """Take a token; the pieces that may be shown now. Sets `stopped` at a stop string."""
        return self._take(self._detokenizer.push(token), origin)

    def finish(self, origin: Origin) -> list[Piece]:
        """No token follows: everything that was held back, unless it was stopped."""
        if self.stopped:
            return []
        shown = self._take(self._detokenizer.flush(), origin)
        if not self.stopped:
            shown, self._held = shown + self._held, []
        return shown

    def _take(self, text: str, origin: Origin) -> list[Piece]:
        if text:
            self._held.append(Piece(text, origin))
        if not self._stops:
            shown, self._held = self._held, []
            return shown
        pending = "".join(piece.text for piece in self._held)
        ends = [i for i in map(pending.find, self._stops) if i >= 0]
        self.stopped = bool(ends)
        cut = min(ends) if ends else len(pending) - _open_length(pending, self._stops)
        shown, self._held = _split(self._held, cut)
        return shown


def _open_length(text: str, stops: Sequence[str]) -> int:
    """The length of the longest end of `text` that a stop string begins with."""
    longest = min(len(text), max(len(stop) for stop in stops) - 1)
    sizes = range(longest, 0, -1)
    return next((n for n in sizes if any(s.startswith(text[-n:]) for s in stops)), 0)


def _split(pieces: list[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    before: list[Piece] = []
    after: list[Piece] = []
    for piece in pieces:
        head, tail = piece.text[: max(0, at)], piece.text[max(0, at) :]
        at -= len(piece.text)
        before += [Piece(head, piece.origin)] if head else []
        after += [Piece(tail, piece.origin)] if tail else []
    return before, after
