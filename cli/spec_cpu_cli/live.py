"""Streaming an answer to a terminal, with a live line beneath it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import inf
from threading import Lock
from time import monotonic

from spec_cpu.answer.stats import Stats
from spec_cpu.text.streaming import Origin, Piece
from spec_cpu_cli import terminal
from spec_cpu_cli.markdown import Markdown
from spec_cpu_cli.report import live_line
from spec_cpu_cli.wrapping import Wrapper

# Colours that can be read on a light ground and on a dark one.
_TINTS: dict[Origin, str] = {
    "accepted": "\x1b[32m",
    "correction": "\x1b[35m",
    "bonus": "\x1b[36m",
    "plain": "",
}
_REFRESH = 0.1  # seconds between two states of the live line
_PATIENCE = 0.5  # seconds that whoever ends the process waits for a writer
_ROWS = 3  # fewer leave no room for it

# The live line stays on the row below the text's cursor: make sure there is one, save the cursor,
# draw, come back. Whatever the text does next, erasing from the cursor on removes it. This is only
# done where the cursor is surely behind the text, on the same row: see `Wrapper.fits`.
_DOWN_AND_UP = "\x1bD\x1b[A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_NEXT_ROW = "\x1b[B\r"
_DIM, _NORMAL = "\x1b[2m", "\x1b[0m"
_ERASE_BELOW = "\x1b[J"


class AnswerView:
    """Writes pieces of an answer to standard output as they come.

    On a terminal lines are broken at spaces; elsewhere the text is written as it is.

    Args:
        live: draw the live line; see `terminal.can_draw`.
        color: tint tokens by their origin, on a terminal that can.
        markdown: on a terminal, format the text, each block once it is complete.
    """

    def __init__(self, *, live: bool, color: bool, markdown: bool = False) -> None:
        self._on_terminal = sys.stdout.isatty()
        self._screen = sys.stdout if self._on_terminal else sys.stderr
        self._wrapper = Wrapper()
        self._markdown = Markdown() if markdown and self._on_terminal else None
        self._writing = Lock()
        self._color = color and terminal.moves_cursor(sys.stdout)
        self._live = live
        self._line = ""
        self._rendered = (-inf, 0)  # when, and for how many columns
        self._shown = False
        self._at_line_start = True

    def show(self, pieces: Sequence[Piece], stats: Stats, why_plain: str | None) -> None:
        """Write `pieces`, then the live line for `stats` (and `why_plain`: see `live_line`)."""
        with self._writing:
            room = self._measure()
            erasure, text = self._erasure(), self._shown_as(pieces)
            self._write(erasure, text, self._drawing(stats, why_plain, room))

    def close(self) -> None:
        """Take the live line away and end the text's last line."""
        with self._writing:
            self._measure()
            self._write(self._erasure(), self._ending(), "")

    def hide(self, *, for_good: bool) -> None:
        """Take the live line away and leave the row to others; any thread may call this.

        Args:
            for_good: draw it no more, for the process is about to end.
        """
        # A halted terminal (Ctrl-S) may hold a writer up for ever, and not the end as well.
        if not self._writing.acquire(timeout=_PATIENCE):
            return
        try:
            self._live = self._live and not for_good
            self._measure()
            out = self._erasure() + self._wrapper.break_line()
            if out:
                os.write(self._screen.fileno(), out.encode())
        finally:
            self._writing.release()

    def _measure(self) -> os.terminal_size | None:
        """The terminal's size now: each time anew, for windows are resized while text streams."""
        size = terminal.size(self._screen)
        self._wrapper.width = size.columns if size else inf
        return size

    def _shown_as(self, pieces: Sequence[Piece]) -> str:
        """What is to be written now of the text."""
        if self._markdown:
            return self._markdown.push("".join(piece.text for piece in pieces))
        if self._on_terminal:
            return "".join(self._wrapper.push(piece.text, self._tint(piece)) for piece in pieces)
        return "".join(piece.text for piece in pieces)

    def _ending(self) -> str:
        """What is to be written behind the last piece."""
        if self._markdown:
            return self._markdown.finish()
        if self._on_terminal:
            return self._wrapper.finish() + self._wrapper.break_line()
        return "" if self._at_line_start else "\n"

    def _tint(self, piece: Piece) -> str:
        return _TINTS[piece.origin] if self._color else ""

    def _erasure(self) -> str:
        """What takes the live line away, if it is there."""
        if not self._shown:
            return ""
        self._shown = False
        # Where the window became too narrow for the row, the cursor may stand on its last letter.
        ended = "" if self._wrapper.fits else self._wrapper.break_line()
        return ended + _ERASE_BELOW

    def _drawing(self, stats: Stats, why_plain: str | None, room: os.terminal_size | None) -> str:
        """What draws the live line, if there is room for it."""
        if not self._live or room is None or room.lines < _ROWS or not self._wrapper.fits:
            return ""
        now, (when, columns) = monotonic(), self._rendered
        if now - when >= _REFRESH or columns != room.columns:
            self._line = live_line(stats, why_plain, room.columns - 1)
            self._rendered = now, room.columns
        if not self._line:
            return ""
        return f"{_DOWN_AND_UP}{_SAVE}{_NEXT_ROW}{_DIM}{self._line}{_NORMAL}{_RESTORE}"

    def _write(self, erasure: str, text: str, drawing: str) -> None:
        """Erase the live line, write `text`, draw again: at one go where it is one terminal."""
        if self._on_terminal:
            text = erasure + text + drawing
        elif erasure or drawing:
            sys.stderr.write(erasure + drawing)
            sys.stderr.flush()
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")
        self._shown = bool(drawing)
