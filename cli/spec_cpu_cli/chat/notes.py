"""What chat says beside the answers: on standard error, so that a pipe gets answers alone."""

from __future__ import annotations

import os
import sys

from spec_cpu_cli.flags import with_flags


def note(text: str) -> None:
    """Say `text`."""
    print(text, file=sys.stderr)


def dim_note(text: str) -> None:
    """Say `text` in a low voice, on a terminal that has one."""
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        text = f"\x1b[2m{text}\x1b[0m"
    note(text)


def complain(error: Exception) -> None:
    """Say what went wrong; the conversation goes on."""
    note(f"spec-cpu: {with_flags(str(error))}")
