"""Conversations kept in SQLite, in a file of the user's own; several processes may use it at once.

The version of its tables is SQLite's `user_version`. A conversation has a revision, so that whoever
goes on with one notices that somebody else did, and then keeps a conversation of its own.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from spec_cpu.cache import data_dir, locked
from spec_cpu.conversations.record import Conversation, HeldWith
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.llama.chat import Message

_VERSION = 2
_FROM_1 = "ALTER TABLE turns ADD COLUMN author TEXT"
_APPLICATION = 0x53504355  # "SPCU": SQLite's `application_id`, which tells our file from others
_PATIENCE = 10.0  # seconds to wait for another process that writes
_TABLES = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    revision INTEGER NOT NULL,
    began TEXT NOT NULL,
    updated TEXT NOT NULL,
    models TEXT NOT NULL,
    settings TEXT NOT NULL,
    finish TEXT
);
CREATE TABLE turns (
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    position INTEGER NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    author TEXT,
    PRIMARY KEY (conversation, position)
);
"""


@dataclass(frozen=True, slots=True)
class Logged:
    """A conversation in the log.

    Attributes:
        number: by which a person asks for it.
        revision: how often it was kept.
        began, updated: UTC, as ISO 8601 has it.
    """

    number: int
    revision: int
    began: str
    updated: str
    conversation: Conversation


def log_file() -> Path:
    """Where the log is."""
    return data_dir() / "conversations.db"


class Log:
    """The log in the file `path`, which may come into being. Use it as a context manager.

    Every method raises SpecCpuError where the file cannot be used.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Open it; default: `log_file`.

        Raises:
            UsageError: the file is something else, or of a later version.
        """
        self.path = path or log_file()
        try:
            with locked(self.path, "open the log", lambda *_: None, _PATIENCE):
                self._database = self._opened()
        except OSError as error:
            raise SpecCpuError(f"cannot open the log {self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def keep(self, conversation: Conversation, before: Logged | None = None) -> Logged:
        """Keep `conversation`, in place of `before` if that is what it goes on from."""
        with self._transaction("IMMEDIATE") as database:
            if before and self._replace(conversation, before):
                number = before.number
            else:
                number = self._insert(conversation)
            database.execute("DELETE FROM turns WHERE conversation = ?", (number,))
            authors = conversation.authors or [None] * len(conversation.messages)
            database.executemany(
                "INSERT INTO turns (conversation, position, role, content, author) "
                "VALUES (?, ?, ?, ?, ?)",
                [
                    (number, i, turn["role"], turn["content"], author)
                    for i, (turn, author) in enumerate(
                        zip(conversation.messages, authors, strict=True)
                    )
                ],
            )
            return self._read(number)

    def latest(self) -> Logged | None:
        """The conversation that was kept last."""
        return next(iter(self.find(most=1)), None)

    def read(self, number: int) -> Logged:
        """Conversation `number`. Raises UsageError where there is none."""
        with self._transaction("DEFERRED"):
            return self._read(number)

    def find(self, query: str | None = None, most: int = -1) -> list[Logged]:
        """The `most` latest conversations, the latest first.

        Args:
            query: only those in which this text was said, in whatever case.
        """
        with self._transaction("DEFERRED") as database:
            rows = database.execute(
                "SELECT number FROM conversations WHERE ?1 IS NULL OR EXISTS (SELECT 1 FROM turns "
                "WHERE conversation = number AND holds(content, ?1)) "
                "ORDER BY updated DESC, number DESC LIMIT ?2",
                (query, most),
            ).fetchall()
            return [self._read(number) for (number,) in rows]

    def clear(self) -> int:
        """Forget every conversation; how many there were."""
        with self._transaction("IMMEDIATE") as database:
            database.execute("DELETE FROM turns")
            n = database.execute("DELETE FROM conversations").rowcount
        with self._using() as database:
            database.execute("VACUUM")  # what was said must not stay in free pages
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return n

    def _opened(self) -> sqlite3.Connection:
        # SQLite gives its helper files the mode of this one.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        database = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            self._check_or_make_tables(database)
        except sqlite3.DatabaseError as error:
            database.close()
            raise SpecCpuError(f"cannot use the log {self.path}: {error}") from None
        except BaseException:
            database.close()
            raise
        database.create_function("holds", 2, _holds, deterministic=True)
        return database

    def _check_or_make_tables(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if not (application or version or tables):
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id = {_APPLICATION}; "
                f"PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        elif application != _APPLICATION:
            raise UsageError(f"{self.path} is a database of another program: move it away")
        elif version == 1:
            database.executescript(f"BEGIN; {_FROM_1}; PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            raise UsageError(
                f"{self.path} is a log of version {version}, but this spec-cpu reads version "
                f"{_VERSION}: update it"
            )

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._database
        except sqlite3.Error as error:
            raise SpecCpuError(f"cannot use the log {self.path}: {error}") from None

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """All or nothing of what is read and written; IMMEDIATE: nobody else writes meanwhile."""
        with self._using() as database:
            database.execute(f"BEGIN {kind}")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def _replace(self, conversation: Conversation, before: Logged) -> bool:
        """Update the row of `before`; False if it was changed or removed meanwhile."""
        changed = self._database.execute(
            "UPDATE conversations SET revision = revision + 1, updated = ?, models = ?, "
            "settings = ?, finish = ? WHERE number = ? AND revision = ?",
            (_now(), *_columns(conversation), before.number, before.revision),
        )
        return changed.rowcount == 1

    def _insert(self, conversation: Conversation) -> int:
        row = self._database.execute(
            "INSERT INTO conversations (revision, began, updated, models, settings, finish) "
            "VALUES (1, ?1, ?1, ?2, ?3, ?4)",
            (_now(), *_columns(conversation)),
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def _read(self, number: int) -> Logged:
        row = self._database.execute(
            "SELECT revision, began, updated, models, settings, finish FROM conversations "
            "WHERE number = ?",
            (number,),
        ).fetchone()
        if row is None:
            raise UsageError(f"there is no conversation {number} in the log")
        revision, began, updated, models, settings, finish = row
        turns = self._database.execute(
            "SELECT role, content, author FROM turns WHERE conversation = ? ORDER BY position",
            (number,),
        ).fetchall()
        messages = [Message(role=role, content=content) for role, content, _ in turns]
        authors = [author for _, _, author in turns]
        held_with = HeldWith(**json.loads(models))
        conversation = Conversation(
            held_with,
            messages,
            json.loads(settings),
            finish,
            authors if any(authors) else [],
        )
        return Logged(number, revision, began, updated, conversation)


def _columns(conversation: Conversation) -> tuple[str, str, str | None]:
    models = json.dumps(asdict(conversation.models), ensure_ascii=False)
    return models, json.dumps(dict(conversation.settings), ensure_ascii=False), conversation.finish


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def _holds(text: str, query: str) -> bool:
    return query.casefold() in text.casefold()
