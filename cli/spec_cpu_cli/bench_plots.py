"""The plots of `spec-cpu bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spec_cpu.bench.results import Speedup
from spec_cpu_cli.bench_report import Report
from spec_cpu_cli.plots import figure


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw what `report` has into PNG files; their paths."""
    draw = {"speedup": _speedup}
    if report.drafted:
        draw["alpha"] = _alpha
    if report.sweep:
        draw["sweep"] = _sweep
    paths = []
    for name, drawn in draw.items():
        path = folder / f"bench-{name}-t{report.settings['temperature']:g}.png"
        with figure(path) as axes:
            drawn(axes, report)
        paths.append(path)
    return paths


def _speedup(axes: Any, report: Report) -> None:
    names = list(report.results)
    speedups = [result.speedup for result in report.results.values()]
    axes.barh(names, [one.median for one in speedups], xerr=_errors(speedups), capsize=3)
    axes.axvline(1, linestyle=":", color="gray")
    axes.invert_yaxis()
    axes.set(xlabel="speedup over plain decoding, 95 %", title="Speedup by category")


def _alpha(axes: Any, report: Report) -> None:
    for name, result in report.results.items():
        alphas = result.alpha_by_position
        axes.plot(range(1, len(alphas) + 1), alphas, marker="o", label=name)
    axes.set(xlabel="position in the draft", ylabel="accepted", ylim=(0, 1.05))
    deepest = max(len(result.alpha_by_position) for result in report.results.values())
    axes.set(title="Acceptance by position", xticks=range(1, deepest + 1))
    axes.legend(fontsize=7)


def _sweep(axes: Any, report: Report) -> None:
    ks = [point.k for point in report.sweep]
    speedups = [point.speedup for point in report.sweep]
    medians = [one.median for one in speedups]
    axes.errorbar(ks, medians, yerr=_errors(speedups), marker="o", capsize=3, label="measured")
    for label, values, style in (
        ("predicted, with V", [point.predicted for point in report.sweep], "--"),
        ("textbook, V = 1", [point.textbook for point in report.sweep], ":"),
    ):
        known = [value if value is not None else float("nan") for value in values]
        axes.plot(ks, known, style, label=label)
    if report.chosen in ks:
        what = "chosen" if report.settings["k"] is None else "pinned"
        axes.axvline(report.chosen, color="gray", alpha=0.4, label=f"{what}: k = {report.chosen}")
    axes.axhline(1, linestyle=":", color="gray")
    axes.set(xlabel="k", ylabel="speedup over plain decoding", title="Each k pinned", xticks=ks)
    axes.legend()


def _errors(speedups: Sequence[Speedup]) -> list[list[float]]:
    """How far the intervals reach below and above the medians; not at all where there is none."""
    below = [0.0 if one.low is None else one.median - one.low for one in speedups]
    return [below, [0.0 if one.high is None else one.high - one.median for one in speedups]]
