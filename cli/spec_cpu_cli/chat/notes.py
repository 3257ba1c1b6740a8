"""What chat says beside the answers: on standard error, so that a pipe gets answers alone."""

from __future__ import annotations

import os
import sys

from spec_cpu_cli.flags import with_flags

_BEGINNING = 60  # characters


def note(text: str) -> None:
    """Say `text`."""
    print(text, file=sys.stderr)


def draws() -> bool:
    """Is standard error a terminal that does more than show one character after another?"""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def dim_note(text: str) -> None:
    """Say `text` in a low voice, on a terminal that has one."""
    if draws():
        text = f"\x1b[2m{text}\x1b[0m"
    note(text)


def complain(error: Exception) -> None:
    """Say what went wrong; the conversation goes on."""
    note(f"spec-cpu: {with_flags(str(error))}")


def beginning(text: str) -> str:
    """How `text` begins, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _BEGINNING else f"{line[: _BEGINNING - 3]}..."
