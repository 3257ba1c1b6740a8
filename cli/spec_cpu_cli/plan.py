"""`spec-cpu plan`: whether speculation pays on this machine, before anything is generated."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu import defaults
from spec_cpu_cli import options as opt
from spec_cpu_cli.command import OUTPUT
from spec_cpu_cli.flags import with_flags
from spec_cpu_cli.signature import with_options
from spec_cpu_cli.terminal import print_table

if TYPE_CHECKING:
    from rich.table import Table

    from spec_cpu.costs.costs import Costs
    from spec_cpu.costs.plan import Plan
    from spec_cpu.rpc.servers import Server

_BAR_WIDTH = 40
_LEGEND = (
    "What the papers call these:",
    "c: how long a guess takes; V(k+1): checking k guesses; alpha: the share accepted.",
)


@with_options
def plan(
    max_k: Annotated[
        int, typer.Option("--max-k", min=1, max=31, help="Tokens to guess ahead, at most.")
    ] = defaults.PLAN_DRAFT_TOKENS,
    depth: Annotated[
        int, typer.Option("--depth", min=1, help="Tokens of text before: more make steps slower.")
    ] = defaults.PLAN_DEPTH,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            callback=opt.home,
            help="Write the curves to a PNG file.",
            show_default="none",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)
    ] = False,
    *,
    models: opt.ModelOptions,
) -> None:
    """Say whether guessing ahead pays on this machine, and how far, or what is in the way.

    Times both models for 3 seconds, and writes no text. Later answers go by these times, and so
    does a later plan, unless the machine was busy meanwhile or an answer showed others.
    --recalibrate times them in any case.
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
            _refuse(f"Do not guess ahead here: {session.target.why_no_drafts}.", as_json=as_json)
            return
        if not session.sources:
            _refuse(
                "Nothing guesses ahead: --draft none leaves out all that could.", as_json=as_json
            )
            return
        with progress_bar(show=not quiet) as report:
            costs = session.calibrate(max_k + 1, depth=depth, progress=report)
        result = make_plan(costs, max_k, session.acceptance)
        if not quiet:
            say(session, said)
    if as_json:
        servers = [str(server) for server in session.target.servers]
        print(json.dumps({**_as_json(result), "servers": servers}))
    else:
        _print(result, session.target.servers, looked_up=session.draft_model is None)
    if plot is not None:
        _plot(result, plot)


def _refuse(verdict: str, *, as_json: bool) -> None:
    """Nothing can be drafted, so that there is nothing to measure."""
    nothing: dict[str, Any] = {"verify": [], "break_even": [], "best": [], "expected": []}
    print(json.dumps({**nothing, "speculate": False, "verdict": verdict}) if as_json else verdict)


def _as_json(plan: Plan) -> dict[str, Any]:
    costs = plan.costs
    return {
        "verify": [
            {"n": n, "seconds": seconds, "V": costs.verify(n)}
            for n, seconds in enumerate(costs.passes, start=1)
        ],
        "c": costs.c,
        "first_step_more": costs.draft_catch_up / costs.passes[0],
        "overhead_seconds": costs.row,
        "rebuild_seconds": costs.rebuild,
        "recovery_seconds": costs.recovery,
        "depth": costs.depth,
        "timed": costs.measured,
        "disturbed": costs.disturbed or None,
        "acceptance": asdict(plan.acceptance) if plan.acceptance else None,
        "expected": [asdict(best) for best in plan.expected],
        "break_even": [
            {"k": k, "alpha": alpha} for k, alpha in enumerate(plan.break_even, start=1)
        ],
        "best": [asdict(best) for best in plan.best],
        "speculate": plan.speculate,
        "verdict": plan.verdict,
    }


def _print(plan: Plan, servers: Sequence[Server], *, looked_up: bool) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 100)
    measured = _measured(plan.costs, looked_up=looked_up)
    console.print(*_where(servers), *measured, "", sep="\n", highlight=False)
    print_table(console, _curve(plan), spare=("",))
    console.print()
    console.print(*_assumed(plan), "", sep="\n", highlight=False)
    console.print(_best(plan), *_LEGEND, "", sep="\n", highlight=False)
    console.print(with_flags(plan.verdict), style="bold")
    if looked_up:
        console.print(
            "That is for steps that find something to guess: where a text does not repeat itself, "
            "nothing is guessed."
        )


def _where(servers: Sequence[Server]) -> Iterator[str]:
    """What computes, if not this machine alone."""
    if servers:
        names = ", ".join(map(str, servers))
        yield f"The layers are on {names}, where llama.cpp's own code computes them."


def _measured(costs: Costs, *, looked_up: bool) -> Iterator[str]:
    """What was measured."""
    from spec_cpu.costs.cache import timed

    step, more = costs.passes[0] * 1e3, costs.draft_catch_up / costs.passes[0]
    yield (
        f"Without guessing ahead a step, of one token, takes {step:.2f} ms after {costs.depth:,} "
        f"tokens of text ({timed(costs)})."
    )
    if costs.disturbed:
        yield f"This machine was busy meanwhile ({costs.disturbed}): do not rely on it."
    also = f", and the first one {more:.2f} more" if more >= 0.005 else ""
    guess = (
        "Guesses are looked up in the text, which takes next to nothing"
        if looked_up
        else f"A guess takes {costs.c:.3f} of such a step{also}"
    )
    yield f"{guess}. Checking guesses, in such steps:"


def _assumed(plan: Plan) -> Iterator[str]:
    """What is expected of the draft."""
    expected = plan.acceptance
    if expected is None:
        yield "How many of the guesses are accepted depends on how much a text repeats itself."
        return
    rates = f"{expected.likely:.0%} ({expected.low:.0%} to {expected.high:.0%})"
    yield f"Expected: {rates} of the guesses are accepted, {expected.basis}."


def _curve(plan: Plan) -> Table:
    from rich.table import Table

    costs = plan.costs
    table = Table("guesses", "checking", "", "pays if accepted", box=None)
    table.columns[2].no_wrap = True  # the bar
    most = costs.verify(len(costs.passes))
    alphas: Sequence[float | None] = (None, *plan.break_even)
    for n, alpha in enumerate(alphas, start=1):
        bar = "█" * max(1, round(_BAR_WIDTH * costs.verify(n) / most))
        pays = "" if n == 1 else "never" if alpha is None else f"{alpha:.0%}"
        table.add_row(str(n - 1), f"{costs.verify(n):.2f}", bar, pays)
    return table


def _best(plan: Plan) -> Table:
    from rich.table import Table

    table = Table("accepted", "best number of guesses", "speedup", box=None)
    for best in sorted({*plan.best, *plan.expected}, key=lambda best: best.alpha):
        style = "bold" if best in plan.expected else None
        table.add_row(f"{best.alpha:.0%}", str(best.k), f"{best.speedup:.2f}x", style=style)
    return table


def _plot(plan: Plan, path: Path) -> None:
    """Draw what checking takes, and the best speedup by acceptance. Needs the extra `plot`."""
    from spec_cpu_cli.plots import figure

    costs = plan.costs
    with figure(path, 2) as (left, right):
        widths = range(1, len(costs.passes) + 1)
        left.plot(widths, [costs.verify(n) for n in widths], marker="o", label="measured")
        left.plot(widths, widths, linestyle=":", color="gray", label="no gain from a batch")
        left.set(xlabel="tokens in a pass", ylabel="times as long as one", title="Checking")
        left.legend()
        alphas = [best.alpha for best in plan.best]
        right.plot(alphas, [best.speedup for best in plan.best], marker="o")
        for best in plan.best:
            right.annotate(f"{best.k} guesses", (best.alpha, best.speedup), fontsize=8)
        right.axhline(1, linestyle=":", color="gray")
        right.set(xlabel="accepted", ylabel="speedup", title="The best number of guesses")
