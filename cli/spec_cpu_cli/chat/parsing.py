"""What a person typed: a message, a command, or what looks like a mistyped command."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

QUOTES = '"""'
_COMMAND = re.compile(r"/([\w?!-]+)(?:\s+(.*))?", re.DOTALL)
_ALIKE = 0.66  # of 1: how much of a mistyped command must be right
_LEAVING = ("exit", "quit")
_ELSEWHERE = {
    "?": "help",
    "bye": "exit",
    "clear": "reset",
    "new": "reset",
    "read": "file",
    "regen": "retry",
    "show": "set",
}
"""What other programs call our commands."""


@dataclass(frozen=True, slots=True)
class Message:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A command, and what was written after it."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Mistyped:
    """Hardly meant for the model: what was typed, and which command it is like."""

    typed: str
    meant: str


def parse(typed: str, commands: Collection[str]) -> Message | Call | Mistyped | None:
    """What was typed; None for nothing.

    Only a known command is carried out. Any other text is for the model, whatever it begins with
    (`/no_think`, `/etc/fstab`), unless it is nearly a command. `//` at the beginning stands for `/`
    and makes it a message, as do quotes around it.
    """
    quoted = unquoted(typed)
    if quoted is not None:
        return Message(quoted) if quoted.strip() else None
    bare = typed.strip()
    if not bare:
        return None
    if bare.startswith("//"):
        return Message(bare[1:])
    return _command(bare, commands) or Message(typed.strip("\n").rstrip())


def _command(bare: str, commands: Collection[str]) -> Call | Mistyped | None:
    if bare in _LEAVING:
        return Call(bare, "")
    found = _COMMAND.fullmatch(bare)
    if found is None:
        return None
    name, argument = found[1], (found[2] or "").strip()
    if name in commands:
        return Call(name, argument)
    meant = _meant(name, commands)
    return Mistyped(f"/{name}", f"/{meant}") if meant else None


def _meant(name: str, commands: Collection[str]) -> str | None:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    return next(iter(get_close_matches(name, commands, n=1, cutoff=_ALIKE)), None)


def is_open(typed: str) -> bool:
    """Does it begin with a line of quotes that no later line closes?"""
    lines = [line.strip() for line in typed.split("\n")]
    return lines[0] == QUOTES and QUOTES not in lines[1:]


def unquoted(typed: str) -> str | None:
    """What stands between a first and a last line of quotes; None if it is not so."""
    lines = typed.strip("\n").split("\n")
    quotes = [i for i, line in enumerate(lines) if line.strip() == QUOTES]
    if quotes != [0, len(lines) - 1]:
        return None
    return "\n".join(lines[1:-1])
