"""What `spec-cpu bench` found: as an object for programs, as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spec_cpu.bench.results import OVERALL, Comparison, Result, Speedup, SweepPoint, most_used
from spec_cpu.costs.costs import Costs
from spec_cpu_cli.flags import with_flags

_BAR_WIDTH = 10
_PIPE_WIDTH = 80  # columns where no terminal shows it
_SHOWN_WIDTHS = (2, 5, 9)
_SHOWN_POSITIONS = 10
_REPEATING = 0.5  # of the answers, from which on they are said to repeat themselves
_COLUMNS = (
    "category",
    "prompts",
    "tok/s",
    "plain",
    "speedup",
    "95 %",
    "accepted",
    "tokens/step",
)
_WHERE = "category", "guesses", "guessing", "model", "choosing", "expected", "predicted", "free"


@dataclass(frozen=True, slots=True)
class Report:
    """All that was measured at one temperature.

    Attributes:
        draft: None where there is no draft model.
        settings: as the JSON object has them: `k` is what was pinned, None for auto.
        results: by category, `overall` last.
        disturbed: what else the machine did meanwhile, in a person's words; None: nothing seen.
    """

    target: dict[str, Any]
    draft: dict[str, Any] | None
    settings: dict[str, Any]
    peak_memory: int
    results: dict[str, Result]
    costs: Costs
    sweep: list[SweepPoint]
    against: list[Comparison]
    notices: list[str]
    disturbed: str | None

    @property
    def drafted(self) -> bool:
        """Were guesses of the speculative arm tried often enough to tell a share?"""
        return bool(self.results[OVERALL].alpha_by_position)

    @property
    def chosen(self) -> int:
        """The k that was pinned, or that most cycles of the auto arm had."""
        pinned: int | None = self.settings["k"]
        return most_used(self.results[OVERALL].k_used) if pinned is None else pinned


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a line above it, and perhaps some below.

    Attributes:
        shown: on the screen, too, or in Markdown alone?
    """

    title: str
    header: Sequence[str]
    rows: list[list[str]]
    note: str = ""
    shown: bool = True


def as_json(report: Report) -> dict[str, Any]:
    """The object that `--json` prints."""
    categories = {name: asdict(result) for name, result in report.results.items()}
    costs = report.costs
    found: dict[str, Any] = {
        "target": report.target,
        "draft": report.draft,
        "settings": report.settings,
        "peak_memory": report.peak_memory,
        "overall": categories.pop(OVERALL),
        "categories": categories,
        "costs": {
            "V": [costs.verify(n) for n in range(1, len(costs.passes) + 1)],
            "c": costs.c,
            "depth": costs.depth,
            "overhead_seconds": costs.row,
            "rebuild_seconds": costs.rebuild,
            "recovery_seconds": costs.recovery,
        },
        "notices": [with_flags(notice) for notice in report.notices],
        "disturbed": report.disturbed,
    }
    if report.sweep:
        found["sweep"] = [asdict(point) for point in report.sweep]
    if report.against:
        found["against"] = [asdict(one) for one in report.against]
    return found


def sections(report: Report) -> list[Section]:
    """The tables of a report."""
    found = [
        Section(
            _title(report.settings),
            _COLUMNS,
            [_cells(name, result) for name, result in report.results.items()],
            "\n".join(_notes(report)),
        ),
        _where(report.results),
    ]
    if len(report.results[OVERALL].sources) > 1:
        found.append(_sources(report.results))
    if report.drafted:
        found.append(_positions(report.results))
    if report.sweep:
        found.append(_sweep(report))
    if report.against:
        found.append(_against(report.against))
    return found


def markdown(found: Sequence[Section]) -> str:
    """The tables in Markdown."""
    parts: list[str] = []
    for section in found:
        rows = [section.header, ["---"] * len(section.header), *section.rows]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts += [section.title, table, *([section.note] if section.note else [])]
    return "\n\n".join(parts) + "\n"


def show(found: Sequence[Section]) -> None:
    """Print the tables for a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
    for section in found:
        if not section.shown:
            continue
        table = Table(*section.header, box=None, pad_edge=False)
        for row in section.rows:
            table.add_row(*row)
        console.print(section.title, style="bold", markup=False)
        console.print(table)
        console.print(section.note + "\n" if section.note else "", markup=False)


def _title(settings: dict[str, Any]) -> str:
    k = settings["k"]
    guesses = "guesses chosen each step" if k is None else f"{k} guesses a step"
    return (
        f"temperature {settings['temperature']:g}, {guesses} ({settings['shape']}), "
        f"{settings['max_tokens']} tokens, "
        f"{settings['threads']} threads"
        + ("" if settings["exact"] else ", NOT exact (rule typical)")
        + ("" if settings["complete"] else " (interrupted: what there is)")
    )


def _cells(name: str, result: Result) -> list[str]:
    return [
        name,
        str(result.prompts),
        _number(result.tokens_per_second, ".1f"),
        _number(result.plain_tokens_per_second, ".1f"),
        *_with_interval(result.speedup),
        _number(result.alpha),
        _number(result.tokens_per_cycle),
    ]


def _notes(report: Report) -> Iterator[str]:
    """What the first table means and rests on."""
    yield "plain: without guessing ahead; 95 %: where the median speedup lies"
    yield "-: fewer than 30 tokens were tried, or fewer than 3 prompts asked, too few to tell"
    if report.disturbed:
        yield (
            f"This machine was busy meanwhile ({report.disturbed}): measure again when it is quiet."
        )
    yield _costs(report.costs)
    repeated = report.results[OVERALL].repetition
    if repeated >= _REPEATING:
        yield (
            f"The answers mostly repeat themselves ({repeated:.0%} of their text stood in them "
            "before): do not expect this speed of others."
        )


def _costs(costs: Costs) -> str:
    passes = ", ".join(f"over {n} {costs.verify(n):.2f}" for n in _SHOWN_WIDTHS)
    return (
        f"in plain steps: a guess of the draft costs {costs.c:.3f}; a pass over 1 token 1, "
        f"{passes} (after {costs.depth} tokens of text)"
    )


def _where(results: dict[str, Result]) -> Section:
    rows = [
        [
            name,
            str(result.k),
            *(
                f"{share:.0%}"
                for share in (result.share_draft, result.share_target, result.share_sample)
            ),
            _number(result.alpha_exact),
            _number(result.speedup_theory),
            _number(result.speedup_textbook),
        ]
        for name, result in results.items()
    ]
    note = (
        "guesses: in most steps that guessed; guessing, model, choosing: shares of the time; "
        "expected: of the guesses to be accepted; predicted: the speedup by that and by what was "
        "timed; free: if checking guesses cost nothing"
    )
    return Section("where the time goes, and what was to be expected", _WHERE, rows, note, False)


def _sources(results: dict[str, Result]) -> Section:
    rows = [
        [
            category,
            name,
            f"{source.cycles:.0%}",
            _number(source.alpha),
            _number(source.tokens_per_cycle),
        ]
        for category, result in results.items()
        for name, source in result.sources.items()
    ]
    header = ["category", "source", "steps", "accepted", "tokens/step"]
    note = "steps: in which it guessed; several may have made the same guess"
    return Section("by source", header, rows, note)


def _positions(results: dict[str, Result]) -> Section:
    deepest = max(len(result.alpha_by_position) for result in results.values())
    deepest = min(deepest, _SHOWN_POSITIONS)
    rows = []
    for name, result in results.items():
        alphas = [_number(alpha) for alpha in result.alpha_by_position[:deepest]]
        rows.append([name, *alphas, *["-"] * (deepest - len(alphas))])
    header = ["category", *(str(i) for i in range(1, deepest + 1))]
    return Section("accepted: the first guess of a step, the second, ...", header, rows)


def _sweep(report: Report) -> Section:
    most = max(point.speedup.median for point in report.sweep)
    chosen = report.chosen
    rows = [
        [
            str(point.k),
            *_with_interval(point.speedup),
            _number(point.predicted),
            _number(point.alpha),
            _number(point.tokens_per_cycle),
            "█" * max(1, round(_BAR_WIDTH * point.speedup.median / most))
            + (" ◀" if point.k == chosen else ""),
        ]
        for point in report.sweep
    ]
    header = ["guesses", "speedup", "95 %", "predicted", "expected", "tokens/step", ""]
    return Section("each number of guesses a step", header, rows, _what_was_chosen(report))


def _what_was_chosen(report: Report) -> str:
    if report.settings["k"] is not None:
        return f"◀ given with -k: {report.chosen}"
    if not report.chosen:
        return "chosen each step: mostly none, which is plain decoding"
    chosen = f"chosen each step: mostly {report.chosen}"
    return f"◀ {chosen}" if report.chosen in (point.k for point in report.sweep) else chosen


def _against(against: Sequence[Comparison]) -> Section:
    rows = [
        [
            one.name,
            _number(one.tokens_per_second, ".1f"),
            *_with_interval(one.speedup),
            *_with_interval(one.ours),
        ]
        for one in against
    ]
    header = ["against", "tok/s", "of plain", "95 %", "ours of it", "95 %"]
    note = "of plain: its speed over that of plain decoding here; ours of it: our speed over its"
    return Section("other programs, by their own count", header, rows, note)


def _with_interval(speedup: Speedup | None) -> tuple[str, str]:
    if speedup is None:
        return "-", "-"
    return f"{speedup.median:.2f}", speedup.interval


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)
