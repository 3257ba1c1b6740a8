"""What was typed in earlier conversations, in a private file of bounded length."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

from spec_cpu import defaults
from spec_cpu.cache import data_dir, locked, write_private

_PATIENCE = 1.0  # seconds to wait for another process


def history_file() -> Path:
    """Where the history is."""
    return data_dir() / "history"


class FileHistory(History):
    """A history in a file: a line of JSON for each message, the latest last.

    A file that cannot be read or written is as good as none: nobody loses an answer by it.
    """

    def __init__(self, path: Path) -> None:
        """Keep it in `path`, which may come into being."""
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """The messages, the latest first."""
        lines = self._lines()
        if len(lines) > defaults.HISTORY:
            with suppress(OSError):
                self._shorten()
        texts = (_message(line) for line in reversed(lines[-defaults.HISTORY :]))
        return [text for text in texts if text is not None]

    def store_string(self, string: str) -> None:
        """Add a message: at one go, so that several processes may do so at once."""
        line = json.dumps(string) + "\n"  # ASCII, whatever was typed
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)

    def _lines(self) -> list[str]:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []

    def _shorten(self) -> None:
        with locked(self._path, "shorten the history", lambda *_: None, _PATIENCE):
            lines = self._lines()[-defaults.HISTORY :]
            write_private(self._path, "".join(f"{line}\n" for line in lines).encode())


def _message(line: str) -> str | None:
    try:
        text = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
