"""What the terminal behind a stream can do, asked of the terminal itself."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from spec_cpu_cli.wrapping import wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 200  # columns for a table that no terminal shows: nothing is folded
_UNBOUNDED = 10_000  # columns: more than any table takes


def size(stream: TextIO) -> os.terminal_size | None:
    """Columns and rows at this moment; None where there is no terminal, or one that knows none.

    It is asked of the descriptor: COLUMNS may be of another window, or of a time before this one
    was resized.
    """
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # no terminal, no descriptor, closed
        return None
    return found if found.columns and found.lines else None


def moves_cursor(stream: TextIO) -> bool:
    """Can the cursor be moved there, and text be tinted?"""
    return size(stream) is not None and (os.environ.get("TERM") or "dumb") not in (
        "dumb",
        "unknown",
    )


def can_draw(*, text: bool) -> bool:
    """Can a line be drawn on standard error, and taken away again, without harm to any text?

    Whatever reads from a pipe may write to the same terminal at any moment, as `tee` does.

    Args:
        text: does text stream to standard output meanwhile?
    """
    if not moves_cursor(sys.stderr):
        return False
    if not text:
        return True
    try:
        out, err = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    if size(sys.stdout) is not None:
        return out.st_rdev == err.st_rdev
    return stat.S_ISREG(out.st_mode) or stat.S_ISCHR(out.st_mode)


def forget_stale_size() -> None:
    """Leave nobody the exported size of a terminal whose true size is known."""
    if size(sys.stdout) or size(sys.stderr):
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def table_console() -> Console:
    """For tables on standard output, whose cells are text, not markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(markup=False, highlight=False, emoji=False, width=width)


def print_table(console: Console, table: Table, *, spare: Sequence[str] = ()) -> None:
    """Print a table; where there is no room for all of it, without columns of lesser worth.

    Args:
        spare: headings of columns that may be left out, in that order. The first column is folded
            at last, but never cut.
    """
    _keep_whole(table)
    for heading in spare:
        if _narrowest(console, table) <= console.width:
            break
        table.columns[:] = [column for column in table.columns if column.header != heading]
    first = table.columns[0]
    if _narrowest(console, table) > console.width:
        first.no_wrap, first.min_width, first.overflow = False, None, "fold"
    console.print(table)


def _narrowest(console: Console, table: Table) -> int:
    """Columns that the table takes at least, if no word is broken."""
    anywhere = console.options.update_width(_UNBOUNDED)
    return console.measure(table, options=anywhere).minimum


def _keep_whole(table: Table) -> None:
    """Columns that are not to be wrapped have room for all of each cell."""
    from rich.cells import cell_len

    for column in table.columns:
        if column.no_wrap:
            texts = [str(column.header), *map(str, column.cells)]
            column.min_width = max(map(cell_len, texts))


def print_text(text: str) -> None:
    """Print a text to standard output; on a terminal its lines are broken at spaces."""
    print(for_terminal(text, sys.stdout), flush=True)


def for_terminal(text: str, stream: TextIO) -> str:
    """`text` as it is written to `stream`: on a terminal its lines are broken at spaces."""
    found = size(stream)
    return wrapped(text, found.columns) if found else text


def print_aside(*lines: str, dim: bool = False) -> None:
    """Print lines to standard error; on a terminal they are broken at spaces, not within words.

    Args:
        dim: in a low voice, on a terminal that has one.
    """
    begin, end = ("\x1b[2m", "\x1b[0m") if dim and moves_cursor(sys.stderr) else ("", "")
    for line in lines:
        print(begin + for_terminal(line, sys.stderr) + end, file=sys.stderr)
