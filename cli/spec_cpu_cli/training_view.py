"""How far a training is: bars on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from spec_cpu_cli.progress import Report

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from spec_cpu.train.recipe import Tick

_PAUSE = 60.0  # seconds between two lines


@dataclass(frozen=True, slots=True)
class View:
    """Is told how far a training is: `report` (what, how much is done, of how much), `tick` a step.

    And `note` of what a person should know.
    """

    report: Report
    tick: Callable[[Tick], None]
    note: Callable[[str], None]


@contextmanager
def training_view(*, show: bool) -> Iterator[View]:
    """A view to tell how far a training is; nothing is shown unless `show` is set."""
    if not show:
        yield View(_ignore, _ignore, _ignore)
    elif sys.stderr.isatty():
        with _progress() as progress:
            bars = _Bars(progress)
            yield View(bars.report, bars.tick, bars.note)
    else:
        yield View(_ignore, _Lines().tick, _print_note)


def _ignore(*_: object) -> None:
    """Ignore what is told: nothing is shown."""


def _print_note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _state(tick: Tick) -> str:
    """Speed, and the shares of guesses that are right, in a few words."""
    parts = [f"{tick.rate:,.0f} tok/s"]
    if tick.acceptance:
        parts.append("accepted " + " ".join(f"{alpha:.2f}" for alpha in tick.acceptance))
    return ", ".join(parts)


class _Lines:
    """A line now and then, for a log."""

    def __init__(self) -> None:
        self._what = ""
        self._acceptance: object = ()
        self._next = 0.0

    def tick(self, tick: Tick) -> None:
        news = (tick.what, tick.acceptance) != (self._what, self._acceptance)
        ends = tick.done >= tick.total
        if not news and not ends and perf_counter() < self._next:
            return
        self._what, self._acceptance = tick.what, tick.acceptance
        self._next = perf_counter() + _PAUSE
        left = (tick.total - tick.done) / tick.rate / 60 if tick.rate else 0.0
        print(
            f"{tick.what}: {tick.done:,} of {tick.total:,} tokens, {_state(tick)}, "
            f"{left:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


class _Bars:
    """A bar a step."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def report(self, what: str, done: int, total: int | None) -> None:
        self._update(what, done, total, "")

    def tick(self, tick: Tick) -> None:
        self._update(tick.what, tick.done, tick.total, _state(tick))

    def note(self, text: str) -> None:
        self._progress.console.print(f"note: {text}", markup=False, highlight=False)

    def _update(self, what: str, done: int, total: int | None, text: str) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total, note=text)
        self._progress.update(self._tasks[what], completed=done, total=total, note=text)


@contextmanager
def _progress() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", style="dim", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress
