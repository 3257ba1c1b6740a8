"""The text on the screen is the text of the model, in a real terminal's emulator."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from unicodedata import combining, normalize

import pyte
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from spec_cpu_cli import terminal
from spec_cpu_cli.live import AnswerView
from spec_cpu_cli.wrapping import Wrapper, wrapped
from wcwidth import wcwidth

from spec_cpu.answer.stats import Stats
from spec_cpu.text.streaming import Piece

ROWS = 24
WORDS = (
    "a",
    "rain",
    "atmosphere",
    "don't",
    "x" * 30,
    "雨",
    "日本語の文",
    "é",
    "cafe\u0301",
    "ẞ",
    "—",
    "नमस्ते",
    "❤\ufe0f",
    "👍🏽",
    "👨\u200d👩\u200d👧",
)
GAPS = (" ", " ", " ", "  ", "\n", "\n\n", "\n    ", ", ", "\t", "\n\t")
FENCED = "\n```py\nif x:\n    return a + b  # as it is\n```\n"
DRAWN = re.compile("\x1bD\x1b\\[A\x1b7.*?\x1b8", re.DOTALL)
SEQUENCE = re.compile("\x1b\\[[0-9;]*[A-Za-z]")

texts = st.lists(
    st.one_of(st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), st.just((FENCED, ""))),
    min_size=1,
    max_size=60,
).map(lambda parts: "".join(word + gap for word, gap in parts))
cuts = st.lists(st.integers(1, 12), min_size=1, max_size=8)


class Emulator(pyte.HistoryScreen):
    """A terminal that keeps all its lines, and says if a letter of the text is ever erased."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns, ROWS, history=10_000)
        self.erased = ""

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        if how == 0 and self.cursor.x:  # in the first column nothing of the text is on its row
            row, x = self.buffer[self.cursor.y], self.cursor.x
            behind = range(x if row[x].data else x - 1, self.columns)  # half a wide one is one
            self.erased += "".join(row[x].data for x in behind).strip()
        super().erase_in_display(how, *args, **kwargs)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        super().resize(lines, columns)
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    def draw(self, data: str) -> None:
        for character in data:  # pyte drops what follows a joiner
            if self.cursor.x == self.columns - 1 and wcwidth(character) == 2:
                self.cursor.x = self.columns  # a wide one needs two columns
            super().draw(character)

    @property
    def rows(self) -> list[Any]:
        return [*self.history.top, *(self.buffer[y] for y in range(self.lines))]

    @property
    def text(self) -> str:
        lines = ("".join(row[x].data for x in range(self.columns)).rstrip() for row in self.rows)
        return "\n".join(lines).rstrip("\n")


class Reflowing(Emulator):
    """A terminal that breaks its lines anew where its width changes, as most do."""

    def draw(self, data: str) -> None:
        for character in data:
            row = self.buffer[self.cursor.y]
            super().draw(character)
            row.goes_on = row is not self.buffer[self.cursor.y]

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        super().erase_in_display(how, *args, **kwargs)
        for y in range(self.cursor.y, self.lines):
            self.buffer[y].goes_on = False

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        before, behind = self._halves()
        self.reset()
        super().resize(lines, columns)
        self._write(before)
        x, y = self.cursor.x, len(self.history.top) + self.cursor.y
        self._write(behind)
        self.cursor.x, self.cursor.y = min(x, self.columns - 1), y - len(self.history.top)

    def _halves(self) -> tuple[str, str]:
        """What there is, with a newline where a line ends: before the cursor, and from it on."""
        halves = ["", ""]
        cursor = len(self.history.top) + self.cursor.y
        for y, row in enumerate(self.rows):
            for x in sorted(row):
                halves[(y, x) >= (cursor, self.cursor.x)] += row[x].data
            if not getattr(row, "goes_on", False):
                halves[y >= cursor] += "\n"
        before, behind = halves
        return before, behind.rstrip()

    def _write(self, text: str) -> None:
        for number, line in enumerate(text.split("\n")):
            if number:
                self.carriage_return()
                self.linefeed()
            self.draw(line)


@dataclass
class Window:
    """A terminal of its own, what is shown in it, and all that was ever written to it."""

    outside: int
    emulator: Emulator
    written: str = ""

    def __post_init__(self) -> None:
        self._stream = pyte.Stream(self.emulator)

    def resize(self, columns: int) -> None:
        self.look()
        size = struct.pack("HHHH", ROWS, columns, 0, 0)
        fcntl.ioctl(self.outside, termios.TIOCSWINSZ, size)
        self.emulator.resize(ROWS, columns)

    def look(self) -> None:
        """Show what was written meanwhile."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.outside, 1 << 16):
                data += part
        text = data.decode()
        self.written += text
        self._stream.feed(text)


@contextlib.contextmanager
def window(
    columns: int, patch: pytest.MonkeyPatch, emulator: type[Emulator] = Emulator
) -> Iterator[Window]:
    outside, inside = os.openpty()
    os.set_blocking(outside, False)
    with os.fdopen(inside, "w", encoding="utf-8", newline="") as stream:
        patch.setattr("sys.stdout", stream)
        patch.setattr("sys.stderr", stream)
        opened = Window(outside, emulator(columns))
        opened.resize(columns)
        try:
            yield opened
        finally:
            os.close(outside)


def show(
    text: str,
    cut: list[int],
    columns: int,
    later: list[int],
    *,
    kind: str = "xterm-256color",
    live: bool = True,
    markdown: bool = False,
    emulator: type[Emulator] = Emulator,
) -> Window:
    """Stream a text in pieces of such lengths, while the window gets these widths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", kind)
        patch.setattr("spec_cpu_cli.live._REFRESH", 0.0)
        with window(columns, patch, emulator) as shown:
            drawn = live and terminal.can_draw(text=True)
            view = AnswerView(live=drawn, color=True, markdown=markdown)
            at, pieces = 0, 0
            stats = Stats(tokens=40, cycles=20, decode=1.0)
            while at < len(text):
                length = cut[pieces % len(cut)]
                piece = Piece(text[at : at + length], ("plain", "accepted")[pieces % 2])
                view.show([piece], stats, "too few tokens are accepted")
                shown.look()
                at, pieces = at + length, pieces + 1
                if later and not pieces % 3:
                    shown.resize(later.pop())
            view.close()
            shown.look()
    return shown


def letters(text: str) -> str:
    """What pyte keeps of a text: no spaces, and no joiners."""
    kept = (one for one in "".join(text.split()) if wcwidth(one) > 0 or combining(one))
    return normalize("NFC", "".join(kept))


def streamed(written: str) -> str:
    """What was written as text: without the live line, and what moves the cursor or tints."""
    return SEQUENCE.sub("", DRAWN.sub("", written))


slow_enough = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@slow_enough
@given(texts, cuts, st.integers(20, 200), st.sampled_from(["xterm-256color", "dumb", ""]))
@example("This vapor rises into the atmosphere, where it cools. " * 9, [4], 73, "dumb")
@example("雨" * 100, [3], 20, "xterm")
@example("👨\u200d👩\u200d👧 " * 60, [1], 20, "xterm")
def test_the_screen_has_the_text(text: str, cut: list[int], columns: int, kind: str) -> None:
    shown = show(text, cut, columns, [], kind=kind)
    assert letters(shown.emulator.text) == letters(text)
    assert not shown.emulator.erased
    if kind in ("dumb", ""):
        assert "\x1b" not in shown.written


@slow_enough
@given(texts, cuts, st.integers(20, 200), st.lists(st.integers(20, 200), max_size=12))
@example("atmosphere " * 30, [5], 80, [20, 79, 41, 33])
def test_a_window_may_change_its_width_at_any_moment(
    text: str, cut: list[int], columns: int, later: list[int]
) -> None:
    """The terminal of the test cuts lines off where it gets narrower, which no program can help: so
    what was written counts, and that nothing of it was erased."""
    shown = show(text, cut, columns, later)
    assert letters(streamed(shown.written)) == letters(text)
    assert not shown.emulator.erased


@slow_enough
@given(st.lists(st.sampled_from(["rain", "falls"]), min_size=1), cuts, st.integers(20, 200))
def test_formatted_text_has_its_letters_too(words: list[str], cut: list[int], columns: int) -> None:
    shown = show("\n\n".join(words), cut, columns, [], markdown=True)
    assert letters(shown.emulator.text) == "".join(words)
    assert not shown.emulator.erased


def test_nothing_is_written_while_another_thread_hides_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with window(80, monkeypatch):
        view = AnswerView(live=False, color=False)
        alone = []
        monkeypatch.setattr(view, "_write", lambda *_: alone.append(view._writing.locked()))
        view.show([Piece("rain", "plain")], Stats(), None)
        view.close()
    assert alone == [True, True]


@slow_enough
@given(texts, cuts, st.integers(20, 200), st.lists(st.integers(20, 200), max_size=12))
@example("atmosphere " * 30, [5], 80, [20, 79, 41, 33])
def test_a_window_that_breaks_its_lines_anew_has_the_text(
    text: str, cut: list[int], columns: int, later: list[int]
) -> None:
    """And nothing of the live line, which was broken as well."""
    shown = show(text, cut, columns, later, emulator=Reflowing)
    assert letters(shown.emulator.text) == letters(text)


def test_a_letter_that_is_erased_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with window(20, monkeypatch) as shown:
        pyte.Stream(shown.emulator).feed("rains\x1b[D\x1b[J")
    assert shown.emulator.erased == "s"


@slow_enough
@given(texts, st.integers(20, 200))
def test_words_are_broken_at_spaces_alone(text: str, width: int) -> None:
    plain = text.replace(FENCED, "\n")
    lines = wrapped(plain, width).split("\n")
    fitting = {word for word in WORDS if len(word) < width and word.isascii()}
    words = re.findall(r"\S+", plain)
    for line in lines:
        for word in re.findall(r"\S+", line):
            if word.rstrip(",") in fitting:
                assert word in words
    assert letters("".join(lines)) == letters(plain)


@slow_enough
@given(texts, cuts, st.integers(20, 200))
def test_how_a_text_is_cut_makes_no_difference(text: str, cut: list[int], width: int) -> None:
    wrapper, at, pieces, out = Wrapper(width), 0, 0, ""
    while at < len(text):
        length = cut[pieces % len(cut)]
        out += wrapper.push(text[at : at + length])
        at, pieces = at + length, pieces + 1
    assert out + wrapper.finish() == wrapped(text, width)


def test_what_would_move_the_cursor_is_shown_by_its_symbol() -> None:
    assert wrapped("a\x1b[2Jb\x07c\rd", 40) == "a␛[2Jb␇cd"


def test_a_tab_leads_to_its_stop_on_any_line() -> None:
    assert wrapped("\ta\tb", 40) == "        a       b"
    assert wrapped("ab cd\tef", 9) == "ab cd\nef"


def test_code_keeps_its_lines() -> None:
    code = "```\n    a = 1                    # a comment that is longer than the line\n```"
    assert wrapped(code, 40) == code


def test_a_stale_size_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with window(40, monkeypatch):
        found = cast("os.terminal_size", terminal.size(sys.stdout))
        assert found.columns == 40
        terminal.forget_stale_size()
        assert "COLUMNS" not in os.environ


@pytest.mark.parametrize("width", range(1, 130, 8))
def test_the_live_line_says_the_speed_first_and_fits(width: int) -> None:
    from spec_cpu_cli.report import live_line

    line = live_line(Stats(tokens=40, cycles=20, decode=1.0), "the text does not repeat", width)
    assert len(line) <= width
    assert not line or line.startswith("40.0 tok/s")
