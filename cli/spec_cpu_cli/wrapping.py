"""Breaking the lines of a text at spaces while it comes, on a terminal."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import groupby
from math import inf
from unicodedata import category, east_asian_width

from rich.cells import cell_len

# What would move the cursor, or worse, is shown by its symbol; a carriage return before a newline,
# or anywhere else, is not shown at all.
_SHOWN: dict[int, int | None] = {
    **{code: 0x2400 + code for code in range(0x20) if code not in b"\t\n\r"},
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    0x7F: 0x2421,
    0x0D: None,
}
_FENCES = ("```", "~~~")
_SOFT_HYPHEN, _EMOJI_STYLE = "\u00ad", "\ufe0f"
_locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
# Where these languages are written, terminals may give two cells to what is wide in their fonts.
_WIDE = ("W", "F", "A") if _locale.startswith(("zh", "ja", "ko")) else ("W", "F")

Marked = tuple[str, str]
"""A character and its tint."""


class Wrapper:
    """Breaks the lines of a text at spaces, and between ideographs.

    A word waits until its end is known, so that nothing that was written has to be taken back. The
    last column stays free: behind it a terminal only remembers that the next character belongs on
    another line, and whatever moves the cursor makes it forget. A word that fits on no line, and a
    line of fenced code, is left for the terminal to break: who copies it gets it whole.

    Attributes:
        width: columns of the terminal; to be kept up to date.
        column: cells that were written since the last line break.
    """

    def __init__(self, width: float = inf) -> None:
        self.width = width
        self.column = 0
        self._gap: list[Marked] = []  # spaces behind what was written
        self._word: list[Marked] = []
        self._cells = 0  # of the word
        self._breakable = True  # may the line be broken before the word?
        self._code = False

    @property
    def fits(self) -> bool:
        """Is the cursor surely behind the text, on its row, on an empty cell?"""
        return self.column < self.width

    def push(self, text: str, tint: str = "") -> str:
        """Take the next text; what is to be written now.

        Args:
            tint: the sequence that begins its colour.
        """
        out = []
        for character in harmless(text):
            if character == "\n":
                out += [self._place(), "\n"]
                self.column, self._breakable = 0, True
                self._gap.clear()
            elif character in " \t":
                out.append(self._place())
                self._gap.append((character, tint))
                self._breakable = True
            else:
                if self._word and _breaks(self._word[-1][0], character):
                    out.append(self._place())
                    self._breakable = True
                self._word.append((character, tint))
                self._cells += cells(character)
                if not self._breakable or self._cells >= self.width:
                    out.append(self._place())
                    self._breakable = False
        return "".join(out)

    def finish(self) -> str:
        """No text follows: the word that waited."""
        return self._place()

    def break_line(self) -> str:
        """End the line, wherever it is, if there is anything on it."""
        if not self.column:
            return ""
        self.column = 0
        self._gap.clear()
        return "\n"

    def _place(self) -> str:
        """Write the word that waited, on another line if it does not fit on this one."""
        if not self._word:
            return ""
        if not self.column and _is_fence("".join(character for character, _ in self._word)):
            self._code = not self._code
        gap = self._expanded()
        broken = ""
        if (
            self._breakable
            and not self._code
            and self.column + len(gap) + self._cells >= self.width
        ):
            broken = self.break_line()
            gap = gap if not broken else []
        self.column += len(gap) + self._cells
        text = broken + _tinted([*gap, *self._word])
        self._gap.clear()
        self._word.clear()
        self._cells = 0
        return text

    def _expanded(self) -> list[Marked]:
        """The gap with spaces for tabs: a terminal's own tabs stop at its last column."""
        gap: list[Marked] = []
        for character, tint in self._gap:
            count = 8 - (self.column + len(gap)) % 8 if character == "\t" else 1
            gap += [(" ", tint)] * count
        return gap


def harmless(text: str) -> str:
    """`text` with symbols in place of what would move the cursor, or worse."""
    return text.translate(_SHOWN)


def wrapped(text: str, width: int) -> str:
    """A whole text, broken at spaces for a terminal of `width` columns."""
    wrapper = Wrapper(width)
    return wrapper.push(text) + wrapper.finish()


@lru_cache(maxsize=4096)
def cells(character: str) -> int:
    """The most columns that a terminal gives to a character.

    Some join emoji and some do not, some know of a newer Unicode than others.
    """
    if character.isascii():
        return 1
    if character == _EMOJI_STYLE:
        return 1  # it may make the character before it a wide one
    kind = category(character)
    if kind in ("Mn", "Me") or (kind == "Cf" and character != _SOFT_HYPHEN):
        return 0
    if "\U0001f1e6" <= character <= "\U0001f1ff":
        return 2  # half a flag
    return max(cell_len(character), 2 if east_asian_width(character) in _WIDE else 1)


def _breaks(before: str, after: str) -> bool:
    """May a line be broken between two characters without a space?"""
    if _ideograph(after):
        return category(before) not in ("Ps", "Pi")  # opening brackets and quotes
    return _ideograph(before) and after.isalnum()


def _ideograph(character: str) -> bool:
    """Is it of a script that is written without spaces, and broken anywhere? Hangul is not."""
    return (
        character >= "\u3040"
        and character.isalpha()
        and east_asian_width(character) in ("W", "F")
        and not "\uac00" <= character <= "\ud7a3"
    )


def _is_fence(word: str) -> bool:
    return word.startswith(_FENCES) and not set("`~") & set(word.lstrip("`~"))


def _tinted(marked: list[Marked]) -> str:
    runs = groupby(marked, key=lambda one: one[1])
    return "".join(
        f"{tint}{text}\x1b[0m" if tint else text
        for tint, text in ((tint, "".join(one for one, _ in run)) for tint, run in runs)
    )
