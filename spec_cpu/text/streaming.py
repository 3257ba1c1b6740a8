"""From committed tokens to text that may be shown: whole characters, nothing of a stop string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Mark(Piece):
    """The name of a control token: stop strings may have it, but it is not shown."""


class TextStream:
    """Detokenizes an answer and ends it at a stop string.

    Text that could be the beginning of a stop string is held back until it is known.
    """

    def __init__(
        self, vocab: Vocab, stops: Sequence[str], marks: Mapping[int, str] | None = None
    ) -> None:
        """End at one of `stops`, which may spell the control tokens `marks`, ids to names."""
        self._detokenizer = Detokenizer(vocab)
        self._stops = [stop for stop in stops if stop]
        self._marks = marks or {}
        self._held: list[Piece] = []
        self.stopped = False

    def push(self, token: int, origin: Origin) -> list[Piece]:
        """Take a token; the pieces that may be shown now. Sets `stopped` at a stop string."""
        if token in self._marks:
            return self._take(_Mark(self._marks[token], origin))
        return self._take(Piece(self._detokenizer.push(token), origin))

    def finish(self, origin: Origin) -> list[Piece]:
        """No token follows: everything that was held back, unless it was stopped."""
        if self.stopped:
            return []
        shown = self._take(Piece(self._detokenizer.flush(), origin))
        if not self.stopped:
            shown, self._held = shown + _visible(self._held), []
        return shown

    def _take(self, piece: Piece) -> list[Piece]:
        if piece.text:
            self._held.append(piece)
        if not self._stops:
            shown, self._held = self._held, []
            return shown
        pending = "".join(piece.text for piece in self._held)
        ends = [i for i in map(pending.find, self._stops) if i >= 0]
        self.stopped = bool(ends)
        cut = min(ends) if ends else len(pending) - _open_length(pending, self._stops)
        shown, self._held = _split(self._held, cut)
        return _visible(shown)


def _visible(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece for piece in pieces if not isinstance(piece, _Mark)]


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
        before += [replace(piece, text=head)] if head else []
        after += [replace(piece, text=tail)] if tail else []
    return before, after
