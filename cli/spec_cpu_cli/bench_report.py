"""What `spec-cpu bench` found: as an object for programs, as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spec_cpu.bench.results import OVERALL, Comparison, Result, Speedup, SweepPoint, most_used
from spec_cpu.costs.costs import Costs

_BAR_WIDTH = 30
_SHOWN_WIDTHS = (2, 5, 9)
_COLUMNS = (
    "category",
    "prompts",
    "tok/s",
    "plain",
    "speedup",
    "95 %",
    "accepted",
    "expected",
    "tok/step",
    "k",
    "predicted",
    "free",
    "draft",
    "target",
    "sample",
)


@dataclass(frozen=True, slots=True)
class Report:
    """All that was measured at one temperature.

    Attributes:
        draft: None where there is no draft model.
        settings: as the JSON object has them: `k` is what was pinned, None for auto.
        results: by category, `overall` last.
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

    @property
    def drafted(self) -> bool:
        """Was anything drafted by the speculative arm?"""
        return bool(self.results[OVERALL].alpha_by_position)

    @property
    def chosen(self) -> int:
        """The k that was pinned, or that most cycles of the auto arm had."""
        pinned: int | None = self.settings["k"]
        return most_used(self.results[OVERALL].k_used) if pinned is None else pinned


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a line above it, and perhaps one below."""

    title: str
    header: Sequence[str]
    rows: list[list[str]]
    note: str = ""


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
        "notices": report.notices,
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
            _costs(report.costs),
        )
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

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for section in found:
        table = Table(*section.header, box=None)
        for row in section.rows:
            table.add_row(*row)
        console.print(section.title, style="bold", markup=False)
        console.print(table)
        console.print(section.note + "\n" if section.note else "", markup=False)


def _title(settings: dict[str, Any]) -> str:
    pinned = "chosen each step" if settings["k"] is None else settings["k"]
    return (
        f"temperature {settings['temperature']:g}, k {pinned} ({settings['shape']}), "
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
        _number(result.alpha_exact),
        _number(result.tokens_per_cycle),
        str(result.k),
        _number(result.speedup_theory),
        _number(result.speedup_textbook),
        *(
            f"{share:.0%}"
            for share in (result.share_draft, result.share_target, result.share_sample)
        ),
    ]


def _costs(costs: Costs) -> str:
    passes = ", ".join(f"V({n}) {costs.verify(n):.2f}" for n in _SHOWN_WIDTHS)
    return (
        f"c {costs.c:.3f}, {passes} (measured at {costs.depth} tokens of context); expected: sum "
        "min(p, q); predicted: from it and these costs; free: if verifying cost nothing"
    )


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
    header = ["category", "source", "steps", "accepted", "tok/step"]
    note = "steps: with a token or a pass of it; several may have proposed the same token"
    return Section("by source", header, rows, note)


def _positions(results: dict[str, Result]) -> Section:
    deepest = max(len(result.alpha_by_position) for result in results.values())
    rows = []
    for name, result in results.items():
        alphas = [_number(alpha) for alpha in result.alpha_by_position]
        rows.append([name, *alphas, *["-"] * (deepest - len(alphas))])
    header = ["category", *(str(i) for i in range(1, deepest + 1))]
    return Section("accepted, by position", header, rows)


def _sweep(report: Report) -> Section:
    most = max(point.speedup.median for point in report.sweep)
    chosen = report.chosen
    rows = [
        [
            str(point.k),
            *_with_interval(point.speedup),
            _number(point.predicted),
            _number(point.textbook),
            _number(point.alpha),
            _number(point.tokens_per_cycle),
            "█" * max(1, round(_BAR_WIDTH * point.speedup.median / most))
            + (" ◀" if point.k == chosen else ""),
        ]
        for point in report.sweep
    ]
    header = ["k", "speedup", "95 %", "predicted", "free", "expected", "tok/step", ""]
    return Section("each k pinned", header, rows, _what_was_chosen(report))


def _what_was_chosen(report: Report) -> str:
    if report.settings["k"] is not None:
        return f"◀ the k that was pinned with -k: {report.chosen}"
    if not report.chosen:
        return "chosen each step, k was 0 in most of them: plain decoding"
    if report.chosen not in (point.k for point in report.sweep):
        return f"chosen each step, k was {report.chosen} in most of them"
    return f"◀ chosen each step, k was {report.chosen} in most of them"


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
    header = ["against", "tok/s", "over plain", "95 %", "spec-cpu over it", "95 %"]
    return Section("other programs, by their own count", header, rows)


def _with_interval(speedup: Speedup | None) -> tuple[str, str]:
    if speedup is None:
        return "-", "-"
    return f"{speedup.median:.2f}", speedup.interval


def _number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)
