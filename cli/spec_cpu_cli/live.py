"""Streaming an answer to a terminal, with a live line beneath it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from spec_cpu.answer.stats import Stats
from spec_cpu.text.streaming import Origin, Piece
from spec_cpu_cli.report import live_line

_TINTS: dict[Origin, Style] = {
    "accepted": Style(color="green"),
    "correction": Style(color="yellow"),
    "bonus": Style(color="cyan"),
    "plain": Style(),
}
_REFRESH = 0.1  # seconds between two states of the live line

# The live line stays on the terminal line below the text's cursor: make sure there is one, save the
# cursor, draw, come back. Whatever the text does next, erasing from the cursor on removes it.
_DOWN_AND_UP = "\x1bD\x1b[A"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_NEXT_LINE = "\x1b[B\r"
_ERASE_BELOW = "\x1b[J"


class AnswerView:
    """Writes pieces of an answer to standard output as they come.

    Args:
        live: draw the live line on standard error (a terminal).
        color: tint tokens by their origin.
    """

    def __init__(self, *, live: bool, color: bool) -> None:
        self._console = Console(stderr=True)
        self._text_console = Console()
        self._live = live
        self._color = color
        self._column = 0  # of the text's cursor; the terminal's width: it hangs behind the last one
        self._drawn = ""
        self._shown = False
        self._drawn_at = 0.0
        self._at_line_start = True

    def show(self, pieces: Sequence[Piece], stats: Stats, why_plain: str | None) -> None:
        """Write `pieces`, then the live line for `stats` (and `why_plain`: see `live_line`)."""
        text = "".join(piece.text for piece in pieces)
        self._erase()
        if text:
            sys.stdout.write(self._tinted(pieces) if self._color else text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")
            self._column = _advanced(self._column, text, self._text_console.width)
        self._draw(stats, why_plain)

    def close(self) -> None:
        """Take the live line away and end the text's last line."""
        self._erase()
        if not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True

    def _tinted(self, pieces: Sequence[Piece]) -> str:
        system = self._text_console._color_system
        return "".join(_TINTS[p.origin].render(p.text, color_system=system) for p in pieces)

    def _erase(self) -> None:
        if self._shown:
            sys.stderr.write(_ERASE_BELOW)
            sys.stderr.flush()
            self._shown = False

    def _draw(self, stats: Stats, why_plain: str | None) -> None:
        if not self._live or self._hangs():
            return
        now = monotonic()
        if now - self._drawn_at > _REFRESH:
            self._drawn, self._drawn_at = self._render(live_line(stats, why_plain)), now
        sys.stderr.write(f"{_DOWN_AND_UP}{_SAVE}{_NEXT_LINE}{self._drawn}{_RESTORE}")
        sys.stderr.flush()
        self._shown = True

    def _hangs(self) -> bool:
        # Behind the last column the terminal only remembers that the next character belongs on a
        # new line; moving the cursor makes it forget. The live line can wait for one more piece.
        return sys.stdout.isatty() and self._column >= self._text_console.width

    def _render(self, line: str) -> str:
        text = Text.from_markup(line)
        text.truncate(self._console.width - 1, overflow="ellipsis")
        with self._console.capture() as capture:
            self._console.print(text, end="", no_wrap=True)
        return capture.get()


def _advanced(column: int, text: str, width: int) -> int:
    """The cursor's column after `text`, on a terminal of `width` columns that wraps."""
    for character in text:
        if character in "\r\n":
            column = 0
        elif character == "\t":
            column = min(width - 1, (column // 8 + 1) * 8)
        else:
            cells = cell_len(character)
            column = cells if column + cells > width else column + cells
    return column
