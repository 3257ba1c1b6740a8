"""`spec-cpu run` on a terminal: the live line, the colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from asking import ASKED, TOKENS
from spec_cpu_cli.wrapping import wrapped

if TYPE_CHECKING:
    from conftest import Models, Program

    Shown = Callable[[bytes], list[str]]

GREEN, MAGENTA, CYAN = "32", "35", "36"


def test_a_live_line_is_drawn_on_a_terminal(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED)
    terminal.finish()
    live = _without_colours(terminal.shown).partition(f"{TOKENS} tokens in ")[0]
    for part in (r"\d tok/s · \d+ tokens", r"\d\.\d tokens per step", r"\d+% of guesses accepted"):
        assert re.search(part, live), part
    assert terminal.shown.count(b"tok/s") > 3


def test_the_live_line_of_plain_decoding_has_its_speed(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.plain, *ASKED)
    terminal.finish()
    live = _without_colours(terminal.shown).partition(f"{TOKENS} tokens in ")[0]
    assert re.search(r"\d tok/s", live)
    assert "accepted" not in live


def test_no_live_line_where_the_text_is_another_programs(
    program: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    """What reads from the pipe, such as `tee`, may write to the same terminal at any moment."""
    terminal = program.on_terminal("run", *readable.pair, *ASKED, on="ie")
    assert terminal.finish().text == drafted["text"] + "\n"
    assert b"\x1bD" not in terminal.shown


def test_no_live_line_where_standard_error_is_no_terminal(
    program: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, on="io")
    done = terminal.finish()
    assert terminal.shown.decode().replace("\r\n", "\n") == wrapped(drafted["text"], 80) + "\n"
    assert "\x1b" not in done.err
    assert done.err.count("tok/s") == 1  # the summary's


def test_quiet_draws_nothing(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "-q", on="e")
    terminal.finish()
    assert terminal.shown == b""


@pytest.mark.parametrize("kind", ["pair", "plain"])
def test_the_live_line_leaves_the_text_intact(
    program: Program, readable: Models, request: pytest.FixtureRequest, kind: str, screen: Shown
) -> None:
    text = request.getfixturevalue("drafted" if kind == "pair" else "plain")["text"]
    drafting = [] if kind == "pair" else ["-d", "none"]
    terminal = program.on_terminal("run", *getattr(readable, kind), *drafting, *ASKED)
    terminal.finish()
    wanted = [
        line[at : at + 80].rstrip()
        for line in wrapped(text, 80).split("\n")
        for at in range(0, max(1, len(line)), 80)
    ]
    shown = screen(terminal.shown)
    assert shown[: len(wanted)] == wanted
    below = "\n".join(shown[len(wanted) :])
    assert f"{TOKENS} tokens in " in below
    assert "·" not in below, "the live line is gone"


@pytest.mark.parametrize("streams", ["oe", "o"])
def test_color_tells_where_tokens_come_from(
    program: Program, readable: Models, drafted: dict[str, Any], streams: str
) -> None:
    # With standard error on a terminal too the live line has colours of its own: --quiet.
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "--color", "-q", on=streams)
    terminal.finish()
    shown = terminal.shown.decode().replace("\r\n", "\n")
    assert _without_colours(terminal.shown) == wrapped(drafted["text"], 80) + "\n"
    tinted = re.findall(r"\x1b\[(\d+)m([^\x1b]*)\x1b\[0m", shown)
    sizes = {
        color: sum(len(text) for found, text in tinted if found == color)
        for color in (GREEN, MAGENTA, CYAN)
    }
    broken = len(drafted["text"]) - len(wrapped(drafted["text"], 80).replace("\n", ""))
    assert drafted["accepted"] - broken <= sizes[GREEN] <= drafted["accepted"]
    assert sizes[MAGENTA] > 0
    assert sizes[CYAN] > 0
    assert TOKENS - 1 - broken <= sum(sizes.values()) <= TOKENS  # the last may be a plain step


def test_color_is_for_terminals_only(
    program: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "--color", on="ie")
    assert terminal.finish().text == drafted["text"] + "\n"


def test_without_color_nothing_is_tinted(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "-q", on="oe")
    terminal.finish()
    assert b"\x1b" not in terminal.shown


def _without_colours(shown: bytes) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).replace("\r\n", "\n")
