"""What becomes the prompt: what is piped in, the argument, files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli import prompt
from spec_cpu_cli.prompt import read_prompt

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes a descriptor standard input."""
    with ExitStack() as stack:

        def become(descriptor: int) -> None:
            stream = stack.enter_context(open(descriptor, encoding="utf-8"))
            monkeypatch.setattr("sys.stdin", stream)

        yield become


Become = Callable[[int], None]


def pipe(text: str) -> int:
    """The end of a pipe that gives `text`, which fits into it."""
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    return read


@given(piped=TEXTS, asked=TEXTS, added=TEXTS)
def test_piped_text_goes_before_the_prompt_and_files_behind_it(
    piped: str, asked: str, added: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "added.txt"
    file.write_text(added, newline="")
    whole = f"{piped}\n\n{asked}\n\n{added}"
    with pytest.MonkeyPatch.context() as patch, open(pipe(piped), encoding="utf-8") as stream:
        patch.setattr("sys.stdin", stream)
        assert read_prompt(asked, [file]) == whole


def test_a_redirected_file_counts_as_piped(stdin: Become, tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("report")
    stdin(os.open(file, os.O_RDONLY))
    assert read_prompt("Summarise", []) == "report\n\nSummarise"


@pytest.mark.parametrize("piped", ["", "\n", " \n\t"])
def test_an_empty_pipe_is_left_out(stdin: Become, piped: str) -> None:
    stdin(pipe(piped))
    assert read_prompt("why?", []) == "why?"


def test_nothing_waits_for_what_may_be_inherited_and_never_ends(stdin: Become) -> None:
    """A terminal, a device, a socket: none of them ends, and two of them never give anything."""
    ours, theirs = socket.socketpair()
    master, terminal = os.openpty()
    with ours:
        for descriptor in (terminal, os.open(os.devnull, os.O_RDONLY), theirs.detach()):
            stdin(descriptor)
            assert read_prompt("why?", []) == "why?"
    os.close(master)


def test_a_dash_says_itself_where_the_pipe_goes(stdin: Become) -> None:
    stdin(pipe("report"))
    assert read_prompt("Summarise", [Path("-")]) == "Summarise\n\nreport"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_pipe_from_which_nothing_comes_is_left_out(
    stdin: Become, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    read, write = os.pipe()  # whose other end stays open, so that reading it would not end
    stdin(read)
    monkeypatch.setattr(prompt, "_PATIENCE", 0.0)
    try:
        assert read_prompt("why?", [], quiet=quiet) == "why?"
    finally:
        os.close(write)
    told = "note: nothing was piped in, so it is left out; `-f -` waits for it\n"
    assert capsys.readouterr().err == ("" if quiet else told)
