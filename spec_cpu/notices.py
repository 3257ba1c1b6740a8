"""Notices that a person wants to read once a day, not at every start."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from time import time

from spec_cpu.cache import cache_dir

_DAY = 24 * 60 * 60  # seconds


class DailyNotice(str):
    """A notice that is shown once a day. Ask `due` before you show it, and call `shown` after."""

    __slots__ = ("_subject",)
    _subject: str

    def __new__(cls, text: object, subject: str = "") -> DailyNotice:
        """A notice that says `text`; of those of one subject, whatever they say, one a day."""
        made = super().__new__(cls, text)
        made._subject = subject or str(text)
        return made

    @property
    def due(self) -> bool:
        """Was it not shown within a day, by any process?"""
        try:
            return time() - self._stamp.stat().st_mtime >= _DAY
        except OSError:
            return True

    def shown(self) -> None:
        """A person saw it."""
        with contextlib.suppress(OSError):
            self._stamp.parent.mkdir(parents=True, exist_ok=True)
            self._stamp.touch()

    @property
    def _stamp(self) -> Path:
        name = hashlib.sha256(self._subject.encode()).hexdigest()[:16]
        return cache_dir() / "notices" / name
