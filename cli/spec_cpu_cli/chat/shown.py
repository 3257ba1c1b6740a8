"""What chat shows of an answer, and of the conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING

from spec_cpu.answer.stats import Stats
from spec_cpu.errors import UsageError
from spec_cpu_cli import terminal
from spec_cpu_cli.answer import print_details, print_summary
from spec_cpu_cli.chat.notes import note
from spec_cpu_cli.report import details, summary

if TYPE_CHECKING:
    from spec_cpu_cli.chat.state import Chat

_NARROW, _WIDTH = 60, 80  # columns: of a narrow terminal, and where there is none


def stats(chat: Chat, _argument: str) -> None:
    """Show everything that was measured of the last answer."""
    session = chat.session
    if not session.stats.cycles:
        raise UsageError("nothing was answered yet")
    print_summary(summary(session.stats, session.why_plain, exact=session.exact))
    print_details(details(session.stats, session.shape, session.target.servers))


def tokens(chat: Chat, _argument: str) -> None:
    """Show how much of the context the conversation takes, as the model reads it."""
    session = chat.session
    if not session.messages:
        note(f"0 of {session.n_ctx:,} tokens of the context are used")
        return
    # The shortest message that may follow: all but itself is used by what was said before.
    used = len(session.render(".").tokens) - 1
    note(
        f"{used:,} of {session.n_ctx:,} tokens of the context are used; "
        f"{session.n_ctx - used:,} are left for your next message and its answer"
    )


def speed_line(stats: Stats) -> str:
    """One line on how quick an answer was."""
    speed = stats.tokens_per_second
    return f"{stats.tokens} tokens" + ("" if speed is None else f", {speed:.1f} a second")


def print_columns(rows: Iterable[tuple[str, str]]) -> None:
    """Print two columns to standard error, one below the other in a narrow terminal."""
    found = terminal.size(sys.stderr)
    width = found.columns if found else _WIDTH
    pairs = list(rows)
    indent = 2 + max(len(left) for left, _ in pairs)
    if width < _NARROW:
        indent = 4
    for left, right in pairs:
        lines = wrap(right, max(1, width - indent - 1))
        if len(left) + 2 <= indent:
            first, *lines = lines or [""]
            note(f"{left:{indent}}{first}".rstrip())
        else:
            note(left)
        for line in lines:
            note(f"{'':{indent}}{line}")
