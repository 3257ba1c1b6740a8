"""A bar on standard error for whatever takes a while: downloads, loading, a long prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spec_cpu_cli import terminal

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, TaskID

Report = Callable[[str, int, int | None], None]


@contextmanager
def progress_bar(*, show: bool = True) -> Iterator[Report]:
    """A callable to be told (what, how much is done, of how much), drawn as one bar a `what`.

    Nothing is drawn unless `show` is set and standard error is a terminal where the cursor moves.
    """
    if not show or not terminal.moves_cursor(sys.stderr):
        yield _ignore
        return
    from rich.progress import TimeElapsedColumn

    with _bars(TimeElapsedColumn()) as report:
        yield report


@contextmanager
def download_progress(*, show: bool = True) -> Iterator[Report]:
    """As `progress_bar`, for bytes: with their number, their speed and the time left."""
    if not show or not terminal.moves_cursor(sys.stderr):
        yield _ignore
        return
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with _bars(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as report:
        yield report


@contextmanager
def _bars(*columns: ProgressColumn) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.theme import Theme

    clock = Theme({"progress.elapsed": "cyan"})  # rich's yellow cannot be read on a light ground
    bars = Progress(
        TextColumn("{task.description}", style="dim", markup=False),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        *columns,
        console=Console(stderr=True, theme=clock),
        transient=True,
    )
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: int, total: int | None) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done, total=total)

    with bars:
        yield report


def _ignore(_what: str, _done: int, _total: int | None) -> None:
    """Ignore what is told: nothing is shown."""
