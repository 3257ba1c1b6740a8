"""One answer on the terminal: progress while the prompt is read, the text, Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from itertools import chain, islice
from textwrap import wrap

from spec_cpu.answer.steps import Step
from spec_cpu.notices import DailyNotice
from spec_cpu.progress import Progress
from spec_cpu.session import Session
from spec_cpu.text.streaming import Piece
from spec_cpu_cli import terminal
from spec_cpu_cli.flags import with_flags
from spec_cpu_cli.interrupt import Interrupt
from spec_cpu_cli.live import AnswerView
from spec_cpu_cli.progress import progress_bar
from spec_cpu_cli.report import LEGEND

Generate = Callable[[Progress], Generator[Step, None, None]]

_UNBOUNDED = 10_000  # columns, where no terminal shows it
_NARROWEST = 20  # columns that a text is broken into


def stream_answer(
    session: Session,
    generate: Generate,
    *,
    stream: bool,
    quiet: bool,
    color: bool,
    markdown: bool = False,
    then_prompt: bool = False,
) -> str:
    """Write an answer as it comes and return its text; `session.finish` says how it ended.

    Ctrl-C ends it; a second one leaves the program at once.

    Args:
        generate: starts the answer; takes the callable that is told of the prompt's progress.
        stream: write the text to standard output.
        quiet: no progress and no live line.
        color: tint tokens by their origin, on a terminal that can.
        markdown: show formatted text, on a terminal.
        then_prompt: keys are echoed again by `interrupt.speak`, once a prompt takes them.
    """
    live = not quiet and terminal.can_draw(text=stream)
    view = AnswerView(live=live, color=color, markdown=markdown)
    texts: list[str] = []
    with Interrupt(view.hide, silent_after=then_prompt) as interrupt:
        steps, first = _begin(generate, interrupt, show=not quiet)
        try:
            for step in chain(first, steps):
                texts.append(step.text)
                view.show(step.pieces if stream else (), session.stats, session.why_plain)
                interrupt.stop_if_asked()
                if interrupt.requested:
                    break
            steps.close()
            if session.held_back:
                texts.append(session.held_back)
                rest = [Piece(session.held_back, "plain")] if stream else []
                view.show(rest, session.stats, session.why_plain)
        finally:
            view.close()
    return "".join(texts)


def _begin(
    generate: Generate, interrupt: Interrupt, *, show: bool
) -> tuple[Generator[Step, None, None], list[Step]]:
    """Read the prompt, with a bar, up to the first step; there is none if that is interrupted."""
    with progress_bar(show=show) as report:
        steps = generate(interrupt.checked(report))
        try:
            return steps, list(islice(steps, 1))
        except KeyboardInterrupt:
            return steps, []


def say(session: Session, said: int = 0) -> int:
    """Print the session's notices from number `said` on to standard error; how many there are."""
    show_notices(session.notices[said:])
    return len(session.notices)


def show_notices(notices: Iterable[str]) -> None:
    """Print notices to standard error, daily ones once a day."""
    for notice in notices:
        if isinstance(notice, DailyNotice):
            if not notice.due:
                continue
            notice.shown()
        terminal.print_aside(f"note: {with_flags(notice)}")


def print_summary(lines: Iterable[str]) -> None:
    """Print a summary to standard error."""
    terminal.print_aside("", *lines)


def print_details(rows: Iterable[tuple[str, str, str]]) -> None:
    """Print all that was measured to standard error, in columns; in a narrow one the last below."""
    rows = list(rows)
    names, values = (max(len(row[column]) for row in rows) for column in (0, 1))
    room = terminal.size(sys.stderr)
    indent = names + values + 4
    width = room.columns - 1 - indent if room else _UNBOUNDED
    lines = []
    for name, value, meaning in rows:
        first, *more = wrap(meaning, width) if width >= _NARROWEST else ("", meaning)
        lines.append(f"{name:{names}}  {value:>{values}}  {first}".rstrip())
        lines += [f"{'':{indent if width >= _NARROWEST else 4}}{line}" for line in more]
    terminal.print_aside("", *lines, LEGEND)
