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
from unicodedata import normalize

import pyte
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from spec_cpu_cli import terminal
from spec_cpu_cli.live import AnswerView
from spec_cpu_cli.wrapping import Wrapper, wrapped

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
)
GAPS = (" ", " ", " ", "  ", "\n", "\n\n", "\n    ", ", ")
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
            row = self.buffer[self.cursor.y]
            behind = range(self.cursor.x, self.columns)
            self.erased += "".join(row[x].data for x in behind).strip()
        super().erase_in_display(how, *args, **kwargs)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        super().resize(lines, columns)
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    @property
    def text(self) -> str:
        lines = [*self.history.top, *(self.buffer[y] for y in range(self.lines))]
        return "\n".join(
            "".join(line[x].data for x in range(self.columns)).rstrip() for line in lines
        ).rstrip("\n")


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
def window(columns: int, patch: pytest.MonkeyPatch) -> Iterator[Window]:
    outside, inside = os.openpty()
    os.set_blocking(outside, False)
    with os.fdopen(inside, "w", encoding="utf-8", newline="") as stream:
        patch.setattr("sys.stdout", stream)
        patch.setattr("sys.stderr", stream)
        opened = Window(outside, Emulator(columns))
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
) -> Window:
    """Stream a text in pieces of such lengths, while the window gets these widths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", kind)
        patch.setattr("spec_cpu_cli.live._REFRESH", 0.0)
        with window(columns, patch) as shown:
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
    return normalize("NFC", "".join(text.split()))


def streamed(written: str) -> str:
    """What was written as text: without the live line, and what moves the cursor or tints."""
    return SEQUENCE.sub("", DRAWN.sub("", written))


slow_enough = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@slow_enough
@given(texts, cuts, st.integers(20, 200), st.sampled_from(["xterm-256color", "dumb", ""]))
@example("This vapor rises into the atmosphere, where it cools. " * 9, [4], 73, "dumb")
@example("雨" * 100, [3], 20, "xterm")
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
