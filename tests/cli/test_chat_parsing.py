"""What a person types in a chat: messages, commands, what is nearly one."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.chat.commands import COMMANDS
from spec_cpu_cli.chat.parsing import Call, Message, Mistyped, is_open, parse, unquoted
from spec_cpu_cli.chat.reading import LineReader

TEXT = st.text(min_size=1).filter(str.strip)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("//etc/fstab", "/etc/fstab"),
        ("//help", "/help"),
        ("/etc/fstab is what?", "/etc/fstab is what?"),
        ("/no_think", "/no_think"),
        ("/no_think why?", "/no_think why?"),
        ("/think", "/think"),
        ("/* a comment */\nint main() {}", "/* a comment */\nint main() {}"),
        ("/", "/"),
        ("    return 1\n", "    return 1"),
        ("exit now", "exit now"),
        ('"""\n/exit\n"""', "/exit"),
        ('"""\n  one\n\n  two\n"""', "  one\n\n  two"),
        ('"""\na docstring\n"""\nimport os', '"""\na docstring\n"""\nimport os'),
    ],
)
def test_what_is_for_the_model(typed: str, message: str) -> None:
    assert parse(typed, COMMANDS) == Message(message)


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        ("exit", Call("exit", "")),
        (" quit ", Call("quit", "")),
        ("/save a file.json ", Call("save", "a file.json")),
        ("/system Be brief.\nAnd kind.", Call("system", "Be brief.\nAnd kind.")),
    ],
)
def test_what_is_a_command(typed: str, call: Call) -> None:
    assert parse(typed, COMMANDS) == call


@pytest.mark.parametrize("typed", ["", " ", "\n\n", '"""\n"""', '"""\n \n"""'])
def test_what_is_nothing(typed: str) -> None:
    assert parse(typed, COMMANDS) is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("/hlep", "/help"), ("/stat", "/stats"), ("/sav x.json", "/save"), ("/?", "/help")),
        *(("/restet", "/reset"), ("/bye", "/exit"), ("/clear", "/reset"), ("/Retry", "/retry")),
    ],
)
def test_what_is_nearly_a_command_is_asked_about(typed: str, meant: str) -> None:
    assert parse(typed, COMMANDS) == Mistyped(typed.split(maxsplit=1)[0], meant)


@given(st.sampled_from(sorted(COMMANDS)), st.data())
def test_a_command_with_two_letters_exchanged_is_never_sent(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 2))
    typed = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    assert not isinstance(parse(f"/{typed}", COMMANDS), Message)


@given(TEXT)
def test_any_text_can_be_sent(text: str) -> None:
    """Law: in quotes it goes as it is, unless it has a line of quotes itself."""
    if any(line.strip() == '"""' for line in text.split("\n")):
        return
    quoted = f'"""\n{text}\n"""'
    assert parse(quoted, COMMANDS) == Message(text)
    assert not is_open(quoted)
    assert is_open(f'"""\n{text}')
    assert unquoted(text) is None


@given(TEXT)
def test_two_slashes_stand_for_one(text: str) -> None:
    assert parse(f"//{text}", COMMANDS) == Message(f"/{text.rstrip()}")


def test_a_pipe_gives_a_line_at_a_time_and_what_is_in_quotes_at_once() -> None:
    reader = LineReader(io.StringIO('one\r\n"""\n  two\n\nthree\n"""\n\nfour'))
    read = [reader.read() for _ in range(5)]
    assert read == ["one", '"""\n  two\n\nthree\n"""', "", "four", None]
    assert LineReader(io.StringIO('"""\nfive')).read() == '"""\nfive', "nothing is lost"
    assert LineReader(None).read() is None


def test_the_page_on_chat_tells_of_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`/?([a-z]+!?)(?: [^`]*)?`", page))
    assert told >= set(COMMANDS)
    assert "`/file -NAME`" in page
    assert "exit code is 1" in page
