"""What chat says beside the answers: on standard error, so that a pipe gets answers alone."""

from __future__ import annotations

from spec_cpu_cli import terminal
from spec_cpu_cli.flags import with_flags

_BEGINNING = 60  # characters


def note(text: str) -> None:
    """Say `text`."""
    terminal.print_aside(text)


def dim_note(text: str) -> None:
    """Say `text` in a low voice, on a terminal that has one."""
    terminal.print_aside(text, dim=True)


def complain(error: Exception) -> None:
    """Say what went wrong; the conversation goes on."""
    note(f"spec-cpu: {with_flags(str(error))}")


def beginning(text: str) -> str:
    """How `text` begins, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _BEGINNING else f"{line[: _BEGINNING - 3]}..."
