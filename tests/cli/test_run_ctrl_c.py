"""Ctrl-C in `spec-cpu run`."""

from __future__ import annotations

import re
import signal
import termios
from typing import TYPE_CHECKING

import pytest
from asking import ENDLESS, PATIENCE

if TYPE_CHECKING:
    from conftest import Models, Program


def test_ctrl_c_keeps_the_text_and_prints_the_summary(program: Program, readable: Models) -> None:
    child = program.start("run", *readable.pair, *ENDLESS)
    assert child.stdout
    begun = child.stdout.read(50)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    text = (begun + out).decode()
    assert child.returncode == 130
    found = re.search(r"^(\d+) tokens in .* tok/s", err.decode(), re.M)
    assert found
    assert len(text) == int(found[1]) + 1  # a newline at the end
    assert "tokens per step" in err.decode()
    assert "Traceback" not in err.decode()


def test_ctrl_c_on_a_terminal(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ENDLESS)
    terminal.wait_for("tok/s")
    terminal.type("\x03")
    done = terminal.finish()
    assert done.code == 130
    assert re.search(rb"\d+ tokens in [\d.]+ s", terminal.shown)
    assert b"Traceback" not in terminal.shown


def test_no_key_is_echoed_into_the_text(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.plain, *ENDLESS, "--json", on="ie")
    terminal.wait_for("tok/s")
    terminal.type("@@@@\x03")
    terminal.finish()
    assert b"@@@@" not in terminal.shown
    assert b"^C" not in terminal.shown


def test_a_signal_that_ends_it_takes_the_live_line_away(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.plain, *ENDLESS, "--json", on="ie")
    terminal.wait_for("tok/s")
    terminal.child.terminate()
    assert terminal.finish().code == 128 + signal.SIGTERM
    assert terminal.shown.endswith(b"\x1b[J")


def test_a_stopped_process_leaves_the_terminal_as_it_was(
    program: Program, readable: Models
) -> None:
    terminal = program.on_terminal("run", *readable.plain, *ENDLESS)
    before = terminal.local_modes
    terminal.wait_for("tok/s")
    assert before & termios.ECHO
    assert not terminal.local_modes & termios.ECHO
    terminal.type("\x1a")
    terminal.wait_for_stop()
    assert terminal.local_modes == before
    text, _, behind = terminal.shown.rpartition(b"\x1b[J")  # erases the live line
    assert b"tok/s" in text
    assert behind in (b"", b"\r\n"), "the shell begins a row of its own"
    at = len(terminal.shown)
    terminal.child.send_signal(signal.SIGCONT)
    terminal.wait_for("tok/s", after=at)
    assert not terminal.local_modes & termios.ECHO
    terminal.type("\x03")
    assert terminal.finish().code == 130
    assert terminal.local_modes == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_whatever_ends_it_leaves_the_terminal_as_it_was(
    program: Program, readable: Models, number: signal.Signals
) -> None:
    terminal = program.on_terminal("run", *readable.plain, *ENDLESS)
    before = terminal.local_modes
    terminal.wait_for("tok/s")
    assert terminal.local_modes != before
    terminal.child.send_signal(number)
    assert terminal.finish().code == 128 + number
    assert terminal.local_modes == before


def test_an_error_leaves_the_terminal_as_it_was(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", "-m", program.home / "none.gguf", "why?")
    before = terminal.local_modes
    assert terminal.finish().code == 2
    assert terminal.local_modes == before


def test_an_interrupted_answer_says_so_in_json(program: Program, readable: Models) -> None:
    # The live line stays away with --json but for the terminal: that it is there means it writes.
    terminal = program.on_terminal("run", *readable.pair, *ENDLESS, "--json", on="ie")
    terminal.wait_for("tok/s")
    terminal.type("\x03")
    done = terminal.finish()
    assert done.code == 130
    assert done.json["finish"] == "interrupted"
    assert 0 < len(done.json["text"]) == done.json["tokens"]


def test_ctrl_c_while_the_prompt_is_read(program: Program, readable: Models) -> None:
    file = program.home / "long.txt"
    file.write_text("why? " * 12_000, encoding="utf-8")
    terminal = program.on_terminal("run", *readable.pair, "-c", "65536", "-f", file, on="ie")
    terminal.wait_for("reading the prompt")
    terminal.type("\x03")
    done = terminal.finish()
    assert (done.code, done.out) == (130, b"")
    assert b"stopped before the first token" in terminal.shown
    assert b"Traceback" not in terminal.shown
