"""Typing in a chat: several lines, pasting, completion, history."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent, DummyCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from spec_cpu_cli.chat.commands import COMMANDS
from spec_cpu_cli.chat.completion import ChatCompleter
from spec_cpu_cli.chat.history import FileHistory, history_file
from spec_cpu_cli.chat.keyboard import KeyboardReader

from spec_cpu import defaults

ENTER, ALT_ENTER, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x03", "\x04", "\x1b[A"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys:
        yield keys


def read(keys: PipeInput, typed: str, *, history: History | None = None, begun: str = "") -> object:
    reader = KeyboardReader(
        DummyCompleter(),
        history=history or InMemoryHistory(),
        quiet=True,
        input=keys,
        output=DummyOutput(),
    )
    keys.send_text(typed)
    return reader.read(begun)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (f"hi{ENTER}", "hi"),
        (f"one{ALT_ENTER}  two{ENTER}", "one\n  two"),
        (f'"""{ENTER}one{ENTER}{ENTER}  two{ENTER}"""{ENTER}', '"""\none\n\n  two\n"""'),
        (
            f"\x1b[200~def f():\r\n    return 1\n\n\tx\x1b[201~{ENTER}",
            "def f():\n    return 1\n\n\tx",
        ),
        (f"{CTRL_C}", ""),
        (f"half a line{CTRL_C}", ""),
        (f"{CTRL_D}", None),
    ],
)
def test_what_is_typed_is_one_message(keys: PipeInput, typed: str, text: str | None) -> None:
    assert read(keys, typed) == text


def test_what_is_offered_can_be_changed(keys: PipeInput) -> None:
    assert read(keys, f"!{ENTER}", begun="hi") == "hi!"


def test_earlier_conversations_are_one_key_away(keys: PipeInput) -> None:
    """Also messages of several lines, whatever they hold."""
    messages = ["first", 'two\n lines "quoted" \\ é', "last"]
    for message in messages:
        FileHistory(history_file()).store_string(message)
    assert list(FileHistory(history_file()).load_history_strings()) == messages[::-1]
    assert history_file().stat().st_mode & 0o777 == 0o600
    # One that waits for what was loaded: keys come at once here.
    history = FileHistory(history_file())
    history._loaded, history._loaded_strings = True, messages[::-1]
    assert read(keys, f"{UP}{ENTER}", history=history) == "last"


def test_history_is_bounded() -> None:
    history = FileHistory(history_file())
    for i in range(defaults.HISTORY + 5):
        history.store_string(f"{i}")
    for _ in range(2):  # the first time shortens the file
        texts = list(FileHistory(history_file()).load_history_strings())
        assert texts == [f"{i}" for i in range(defaults.HISTORY + 4, 4, -1)]
    assert len(history_file().read_text(encoding="utf-8").splitlines()) == defaults.HISTORY
    assert history_file().stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_used_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b'\xff{"half\n"whole"\n7\n')
    assert list(FileHistory(tmp_path / "damaged").load_history_strings()) == ["whole"]
    nowhere = FileHistory(tmp_path / "damaged" / "history")
    nowhere.store_string("lost")
    assert list(nowhere.load_history_strings()) == []


@pytest.fixture
def completer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChatCompleter:
    """In a folder with a few files."""
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "novel.md", "other"):
        (tmp_path / name).touch()
    return ChatCompleter()


def completed(completer: ChatCompleter, typed: str) -> list[str]:
    """What the line may become."""
    found = completer.get_completions(Document(typed), CompleteEvent(completion_requested=True))
    return sorted(typed[: len(typed) + one.start_position] + one.text for one in found)


def test_commands_are_completed(completer: ChatCompleter) -> None:
    assert completed(completer, "/") == sorted(f"/{name}" for name in COMMANDS)
    assert completed(completer, "/re") == ["/reset", "/retry"]
    for text in ("", "he", "hello /re", "/nothing x", "/reset "):
        assert completed(completer, text) == []


@pytest.mark.parametrize("command", ["file", "load", "save"])
def test_names_of_files_are_completed(completer: ChatCompleter, command: str) -> None:
    assert completed(completer, f"/{command} no") == [
        f"/{command} notes.txt",
        f"/{command} novel.md",
    ]
    here = os.getcwd()
    assert completed(completer, f"/{command} {here}/oth") == [f"/{command} {here}/other"]


def test_settings_and_drafts_are_completed(completer: ChatCompleter) -> None:
    assert completed(completer, "/set top") == ["/set top-k", "/set top-p"]
    assert completed(completer, "/draft n") == ["/draft ngram", "/draft none"]
    assert completed(completer, "/draft a") == ["/draft auto"]
    assert "/draft ngram,smollm2-135m-instruct" in completed(completer, "/draft ngram,smol")
