"""`spec-cpu plan`: whether speculation pays on this machine, before anything is generated."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu import defaults
from spec_cpu_cli import options as opt
from spec_cpu_cli.signature import with_options

if TYPE_CHECKING:
    from rich.table import Table

    from spec_cpu.costs.plan import Plan

_BAR_WIDTH = 40


@with_options
def plan(
    max_k: Annotated[
        int, typer.Option("--max-k", min=1, max=31, help="The most drafted tokens to look at.")
    ] = defaults.PLAN_DRAFT_TOKENS,
    depth: Annotated[
        int, typer.Option("--depth", min=1, help="Tokens in the context when it is measured.")
    ] = defaults.PLAN_DEPTH,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            callback=opt.home,
            help="Write the curves to a PNG file.",
            show_default="none",
            rich_help_panel="Output",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel="Output")
    ] = False,
    *,
    models: opt.ModelOptions,
) -> None:
    """Say whether to speculate on this machine, with which k, or what is in the way.

    Measures what passes cost; nothing is generated. What was measured is kept for later runs.
    """
    from spec_cpu.costs.plan import make_plan
    from spec_cpu.sampling.pipeline import SamplingParams
    from spec_cpu_cli.answer import say
    from spec_cpu_cli.plots import check_file
    from spec_cpu_cli.progress import progress_bar

    if plot is not None:
        check_file(plot)
    quiet = models.quiet
    drafting = opt.DraftOptions(draft_tokens=max_k, shape="chain")
    session = opt.open_session(models.choice, models, drafting, SamplingParams())
    with session:
        said = 0 if quiet else say(session)
        if session.target.why_no_drafts:
            _refuse(f"Do not speculate here: {session.target.why_no_drafts}.", as_json=as_json)
            return
        with progress_bar(show=not quiet) as report:
            costs = session.calibrate(max_k + 1, depth=depth, progress=report)
        result = make_plan(costs, max_k)
        if not quiet:
            say(session, said)
    if as_json:
        print(json.dumps(_as_json(result)))
    else:
        _print(result)
    if plot is not None:
        _plot(result, plot)


def _refuse(verdict: str, *, as_json: bool) -> None:
    """Nothing can be drafted, so that there is nothing to measure."""
    nothing: dict[str, Any] = {"verify": [], "break_even": [], "best": []}
    print(json.dumps({**nothing, "speculate": False, "verdict": verdict}) if as_json else verdict)


def _as_json(plan: Plan) -> dict[str, Any]:
    costs = plan.costs
    return {
        "verify": [
            {"n": n, "seconds": seconds, "V": costs.verify(n)}
            for n, seconds in enumerate(costs.passes, start=1)
        ],
        "c": costs.c,
        "overhead_seconds": costs.row,
        "rebuild_seconds": costs.rebuild,
        "recovery_seconds": costs.recovery,
        "depth": costs.depth,
        "break_even": [
            {"k": k, "alpha": alpha} for k, alpha in enumerate(plan.break_even, start=1)
        ],
        "best": [asdict(best) for best in plan.best],
        "speculate": plan.speculate,
        "verdict": plan.verdict,
    }


def _print(plan: Plan) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 100)
    costs = plan.costs
    console.print(f"Measured at {costs.depth} tokens of context; a plain step takes ", end="")
    console.print(f"{costs.passes[0] * 1e3:.2f} ms, a draft step {costs.c:.3f} of that (c).")
    console.print(_curve(plan), "")
    console.print(_best(plan), "")
    console.print(plan.verdict, style="bold")


def _curve(plan: Plan) -> Table:
    from rich.table import Table

    costs = plan.costs
    table = Table("tokens", "V(n)", "", "k", "pays if accepted", box=None, title_justify="left")
    most = costs.verify(len(costs.passes))
    alphas: Sequence[float | None] = (None, *plan.break_even)
    for n, alpha in enumerate(alphas, start=1):
        bar = "█" * max(1, round(_BAR_WIDTH * costs.verify(n) / most))
        pays = "" if n == 1 else "never" if alpha is None else f"{alpha:.0%}"
        table.add_row(str(n), f"{costs.verify(n):.2f}", bar, str(n - 1) if n > 1 else "", pays)
    return table


def _best(plan: Plan) -> Table:
    from rich.table import Table

    table = Table("accepted", "best k", "speedup", box=None)
    for best in plan.best:
        table.add_row(f"{best.alpha:.0%}", str(best.k), f"{best.speedup:.2f}x")
    return table


def _plot(plan: Plan, path: Path) -> None:
    """Draw V(n) and the best speedup by alpha. Needs the extra `plot`."""
    from spec_cpu_cli.plots import figure

    costs = plan.costs
    with figure(path, 2) as (left, right):
        widths = range(1, len(costs.passes) + 1)
        left.plot(widths, [costs.verify(n) for n in widths], marker="o", label="measured")
        left.plot(widths, widths, linestyle=":", color="gray", label="no gain from a batch")
        left.set(xlabel="tokens in a pass", ylabel="V(n), plain steps", title="A verification")
        left.legend()
        alphas = [best.alpha for best in plan.best]
        right.plot(alphas, [best.speedup for best in plan.best], marker="o")
        for best in plan.best:
            right.annotate(f"k = {best.k}", (best.alpha, best.speedup), fontsize=8)
        right.axhline(1, linestyle=":", color="gray")
        right.set(xlabel="accepted", ylabel="speedup", title="The best k")
