"""`--memory` and `spec-cpu memory`: who keeps what was said, where, and how it is removed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from asking import ENDLESS, PATIENCE

if TYPE_CHECKING:
    from conftest import Models, Program

ASKED = ["--temp", "0", "-n", "40", "--ignore-eos", "-k", "6", "why? why? why?"]
TALK = ["--temp", "0", "-n", "40", "-k", "6"]


def memories(cache: Path) -> list[Path]:
    return [file for file in (cache / "memory").glob("*") if file.name[0] != "."]


def test_a_second_run_drafts_from_the_first(cli: Program, readable: Models, tmp_path: Path) -> None:
    args = [*readable.alone, "-d", "ngram", *ASKED]
    without = cli.answer(*args)
    first, second = (cli.answer(*args, "--memory", tmp_path / "one") for _ in range(2))
    assert first["accepted"] == without["accepted"] < second["accepted"]
    assert first["text"] == second["text"] == without["text"]
    assert first.keys() == without.keys()
    assert first["notices"] == without["notices"]


def test_chat_keeps_what_is_said_and_says_so_and_it_can_be_removed(
    program: Program, readable: Models, own_cache: Path
) -> None:
    for turn in range(2):
        done = program("chat", *readable.alone, *TALK, stdin="why? why? why?\n")
        assert done.code == 0, done.err
        assert ("memory clear" in done.err) == (turn == 0)
    (file,) = memories(own_cache)
    shown = program("memory", "show")
    assert str(file) in shown.text
    assert "tiny llama model" in shown.text
    assert program("memory", "show", file).text == shown.text
    file.with_name("old.memory.damaged").write_text("spec-cpu memory")
    assert "damaged" in program("memory", "show").text
    assert program("memory", "clear").text.count("removed") == 2
    assert not memories(own_cache)
    assert "nothing is kept" in program("memory", "show").text


@pytest.mark.parametrize("asked", [["--seed", "1"], ["--memory", "off"], ["-d", "none"]])
def test_chat_keeps_nothing_where_it_should_not(
    program: Program, readable: Models, own_cache: Path, asked: list[str]
) -> None:
    done = program("chat", *readable.alone, *TALK, *asked, stdin="why?\n")
    assert done.code == 0, done.err
    assert not memories(own_cache)


def test_nobody_is_told_that_something_is_kept_where_nothing_drafts(
    program: Program, readable: Models, own_cache: Path
) -> None:
    done = program("chat", *readable.alone, "--temp", "0", "-n", "4", "-k", "0", stdin="why?\n")
    assert done.code == 0, done.err
    assert "is kept" not in done.err
    assert not memories(own_cache)


def test_run_keeps_nothing_unless_it_is_asked_to(
    program: Program, readable: Models, own_cache: Path
) -> None:
    for asked, files in (([], 0), (["--memory", "off"], 0), (["--memory", "on"], 1)):
        done = program("run", *readable.alone, *ASKED, *asked)
        assert done.code == 0, done.err
        assert len(memories(own_cache)) == files


def test_what_cannot_be_a_memory_is_one_line(
    cli: Program, readable: Models, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.write_text("mine")
    for args, words in (
        (["run", *readable.alone, *ASKED, "--memory", notes], "is no memory"),
        (["run", *readable.pair, "--memory", notes, "why?"], "--memory needs --draft ngram"),
        (["memory", "show", tmp_path / "none"], "there is no memory"),
        (["memory", "clear", notes], "is no memory"),
    ):
        done = cli(*args)
        assert done.code == 2
        assert words in done.err
        assert len(done.err.splitlines()) == 1
    assert notes.read_text() == "mine"


def test_a_file_that_is_no_memory_hides_no_other(program: Program, own_cache: Path) -> None:
    folder = own_cache / "memory"
    folder.mkdir(parents=True)
    (folder / "a.memory.damaged").write_text("overwritten by something")
    (folder / "b.memory").write_text("")
    shown = program("memory", "show")
    assert shown.code == 0, shown.err
    assert [line.rpartition(": ")[2] for line in shown.text.splitlines()] == [
        "no memory of spec-cpu",
        "empty",
    ]


def test_what_a_link_leads_to_is_removed(program: Program, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("")
    link.symlink_to(kept)
    assert str(kept) in program("memory", "clear", link).text
    assert not kept.exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [("a" * 300, "too long"), ("a/b", "Not a directory"), ("c", "there is no memory")],
)
def test_a_memory_that_cannot_be_there_is_one_line(
    program: Program, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "a").write_text("")
    for command in ("show", "clear"):
        done = program("memory", command, tmp_path / name)
        assert done.code == 2
        assert words in done.err
        assert len(done.err.splitlines()) == 1


def test_a_damaged_one_is_a_note_and_the_answer_is_given(
    cli: Program, readable: Models, tmp_path: Path
) -> None:
    file = tmp_path / "one"
    file.write_text("spec-cpu memory, format 1\n")
    done = cli("run", *readable.alone, *ASKED, "--memory", file)
    assert done.code == 0
    assert done.out
    assert done.err.count("is damaged") == 1
    assert (tmp_path / "one.damaged").is_file()
    assert file.is_file()


def test_ctrl_c_keeps_what_was_said(program: Program, readable: Models, tmp_path: Path) -> None:
    args = [*readable.alone, "-d", "ngram", "-k", "6", *ENDLESS, "--memory", tmp_path / "one"]
    child = program.start("run", *args)
    assert child.stdout
    child.stdout.read(50)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 130
    assert "tokens of text" in program("memory", "show", tmp_path / "one").text


def test_what_a_killed_process_left_is_removed_as_well(program: Program, own_cache: Path) -> None:
    """A save that was killed leaves what was said, in the cache and beside a file of one's own."""
    own = own_cache / "own"
    for folder, name, target in ((own_cache / "memory", "x.memory", []), (own_cache, "own", [own])):
        rests = folder / f".{name}.staging"
        rests.mkdir(parents=True)
        (rests / "memory").write_text("what was said")
        (folder / name).touch()
        cleared = program("memory", "clear", *target)
        assert cleared.code == 0, cleared.err
        assert not rests.exists()
        assert not (folder / name).exists()


def test_rests_without_a_memory_are_shown_and_removed(program: Program, own_cache: Path) -> None:
    rests = own_cache / "memory" / ".x.memory.staging"
    rests.mkdir(parents=True)
    assert "rests of a process" in program("memory", "show").text
    assert program("memory", "clear").code == 0
    assert not rests.exists()


@pytest.mark.parametrize("command", [["run", "hi", "--memory", "on"], ["chat"]])
def test_a_model_that_is_not_there_is_what_is_said(cli: Program, command: list[str]) -> None:
    """The memory has a name by the model's file, which is looked at before anything is loaded."""
    done = cli(*command, "-m", "nosuch.gguf")
    assert done.code == 2
    assert "no such file: nosuch.gguf" in done.err
