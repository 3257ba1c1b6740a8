"""A call in JSON while it is being written: its name as soon as it is known, then its arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Said:
    """Text that is no call."""

    text: str


@dataclass(frozen=True, slots=True)
class Began:
    """A call of the function `name`; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """The next part of the latest call's arguments, which are JSON."""

    text: str


Event: TypeAlias = Said | Began | Arguments

_HEAD = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


class Braces:
    """Finds the end of a JSON object or array in a text that comes in parts."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def end(self, text: str) -> int | None:
        """Where in `text`, which goes on from the last one, it ends; None if it goes on."""
        for i, character in enumerate(text):
            if self._quoted:
                self._quoted = self._escaped or character != '"'
                self._escaped = character == "\\" and not self._escaped
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return i + 1
        return None


class CallObject:
    """`{"name": NAME, "arguments": {...}}`, or with "parameters".

    Attributes:
        done: it is complete; what follows is not its own.
    """

    def __init__(self, known: Callable[[str], bool]) -> None:
        """`known`: is there a function of this name? Else the object is a text as any other."""
        self._known = known
        self._whole = Braces()
        self._inner: Braces | None = None  # of the arguments, once they began
        self._closed = False  # they are complete
        self._text = ""
        self.done = False

    def push(self, text: str) -> tuple[list[Event], str]:
        """What `text` tells of it, and the rest of `text` behind it."""
        end = self._whole.end(text)
        own, rest = (text, "") if end is None else (text[:end], text[end:])
        self._text += own
        events = self._arguments(own) if self._inner else self._begin()
        self.done = end is not None
        if self.done and self._inner is None:
            events = self._read()
        return events, rest

    def finish(self) -> list[Event]:
        """It breaks off: a text, unless its beginning was told already."""
        return [] if self._inner or self.done else [Said(self._text)]

    def _begin(self) -> list[Event]:
        found = _HEAD.match(self._text)
        if found is None or not self._known(name := _string(found[1])):
            return []
        self._inner = Braces()
        return [Began(name), *self._arguments(self._text[found.end() :])]

    def _arguments(self, text: str) -> list[Event]:
        if self._closed or self._inner is None:
            return []
        end = self._inner.end(text)
        self._closed = end is not None
        text = text[:end]
        return [Arguments(text)] if text else []

    def _read(self) -> list[Event]:
        """The complete object, whose parts stand in another order."""
        try:
            found = json.loads(self._text)
        except ValueError:
            return [Said(self._text)]
        name = found.get("name") if isinstance(found, dict) else None
        if not isinstance(name, str) or not self._known(name):
            return [Said(self._text)]
        given = found.get("arguments", found.get("parameters", {}))
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return [Began(name), Arguments(text)]


def _string(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return ""
