"""Conversations in SQLite."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from made_up_talk import CONVERSATIONS, talk

from spec_cpu.conversations.log import Log, log_file
from spec_cpu.conversations.record import Conversation
from spec_cpu.errors import SpecCpuError, UsageError


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONVERSATIONS)
def test_what_is_kept_is_read_back(tmp_path: Path, conversation: Conversation) -> None:
    with Log(tmp_path / "log.db") as log:
        number = log.keep(conversation).number
    with Log(tmp_path / "log.db") as log:
        assert log.read(number).conversation == conversation
        assert log.latest() == log.read(number)


def test_nobody_else_can_read_it() -> None:
    with Log() as log:
        log.keep(talk("hi", "hello"))
        files = list(log_file().parent.glob("conversations.db*"))
        assert len(files) > 1, "the helper files of SQLite are there while it is open"
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_conversation_goes_on_in_its_place() -> None:
    with Log() as log:
        first = log.keep(talk("hi", "hello"))
        other = log.keep(talk("why?", "so"))
        longer = log.keep(talk("hi", "hello", "and then?", "nothing"), first)
        assert (longer.number, longer.revision, longer.began) == (first.number, 2, first.began)
        assert log.latest() == longer
        assert log.find() == [longer, other]


def test_of_two_that_go_on_from_the_same_both_are_kept() -> None:
    with Log() as log:
        first = log.keep(talk("hi", "hello"))
        one = log.keep(talk("hi", "hello", "one", "1"), first)
        two = log.keep(talk("hi", "hello", "two", "2"), first)
        assert one.number == first.number != two.number
        assert log.find() == [two, one]


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    """Each with a connection of its own, from the first moment on."""

    def write(name: int) -> None:
        with Log(tmp_path / "log.db") as log:
            before = None
            for i in range(5):
                before = log.keep(talk(f"{name}", f"{i}"), before)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(8)))
    with Log(tmp_path / "log.db") as log:
        found = log.find()
    assert sorted(one.conversation.messages[0]["content"] for one in found) == list("01234567")
    assert {one.conversation.messages[1]["content"] for one in found} == {"4"}


def test_searching_finds_what_was_said_in_whatever_case() -> None:
    with Log() as log:
        log.keep(talk("hi", '100% "sure"'))
        log.keep(talk("ÄHRE", "a_b"))
        asked = {query: len(log.find(query)) for query in ("äh", "0%", '"SURE"', "a_b", "%", "axb")}
        assert asked == {"äh": 1, "0%": 1, '"SURE"': 1, "a_b": 1, "%": 1, "axb": 0}
        assert len(log.find(most=1)) == 1


def test_clearing_leaves_nothing_of_what_was_said() -> None:
    with Log() as log:
        log.keep(talk("my secret " * 1000, "hello"))
        assert log.clear() == 1
        assert log.latest() is None
        for file in log.path.parent.glob("conversations.db*"):
            assert b"secret" not in file.read_bytes()


def test_a_number_that_is_not_there() -> None:
    with Log() as log, pytest.raises(UsageError, match="no conversation 7"):
        log.read(7)


def test_files_that_are_no_log_are_refused_and_stay(tmp_path: Path) -> None:
    text, other, later = (tmp_path / name for name in ("text", "other.db", "later.db"))
    text.write_text("no database " * 100, encoding="utf-8")
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE mine (x)")
    Log(later).close()
    with closing(sqlite3.connect(later)) as database:
        database.execute("PRAGMA user_version = 3")
    for file, message in ((text, "not a database"), (other, "another"), (later, "update it")):
        before = file.read_bytes()
        with pytest.raises(SpecCpuError, match=message):
            Log(file)
        assert file.read_bytes() == before
    with pytest.raises(SpecCpuError, match="cannot open the log"):
        Log(tmp_path / "text" / "log.db")
