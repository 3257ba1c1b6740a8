"""`spec-cpu bench`: plain and speculative decoding in turn on the same prompts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu import defaults
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu_cli import options as opt

if TYPE_CHECKING:
    from spec_cpu.benchmark import Pair, Prompt, Result
    from spec_cpu.session import Session

_COLUMNS = (
    "category",
    "prompts",
    "tok/s",
    "plain",
    "speedup",
    "95 %",
    "alpha",
    "exact",
    "tok/cycle",
)
_MORE = ("k", "formula", "textbook", "draft", "target", "sample")


def bench(
    prompts: Annotated[
        Path, typer.Option("--prompts", help="Lines of JSON: category, and turns or prompt.")
    ] = Path("bench/prompts.jsonl"),
    target: opt.Target = None,
    draft: opt.Draft = None,
    pair: opt.Pair = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="So many prompts of each category.")
    ] = None,
    max_tokens: opt.MaxTokens = defaults.BENCH_TOKENS,
    temps: Annotated[
        str, typer.Option("--temp", help="Temperatures, with commas between.")
    ] = defaults.BENCH_TEMPERATURES,
    ctx: opt.Context = None,
    threads: opt.Threads = None,
    draft_tokens: opt.DraftTokens = None,
    rule: opt.Rule = defaults.RULE,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel="Output")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print tables in Markdown.", rich_help_panel="Output")
    ] = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Measure what the draft is worth here: plain and speculative in turn, prompt by prompt.

    The speedup is the median of the pairs' ratios with a bootstrap interval, by category and
    overall. Ctrl-C prints what there is.
    """
    from spec_cpu.benchmark import peak_memory, read_prompts, summarize
    from spec_cpu.sampling import SamplingParams

    choice = opt.choose_models(target, draft, pair)
    if choice.draft is None:
        raise UsageError("bench compares a draft with none: give --draft or --pair")
    chosen = _limited(read_prompts(prompts), limit)
    reports: list[dict[str, Any]] = []
    for temperature in _temperatures(temps):
        session = opt.open_session(
            choice,
            ctx=ctx,
            draft_ctx=None,
            threads=threads,
            k=draft_tokens,
            rule=rule,
            sampling=SamplingParams(temperature=temperature),
            seed=None,
            system=None,
            verbose=verbose,
            progress=not quiet,
        )
        with session:
            pairs, whole = _measure(session, chosen, max_tokens, seed, show=not quiet)
            if not pairs:
                raise SpecCpuError("stopped before the first pair of answers")
            results = summarize(pairs)
            settings = {
                "temperature": temperature,
                "k": draft_tokens,
                "rule": rule,
                "max_tokens": max_tokens,
                "threads": session.threads,
                "seed": seed,
                "complete": whole,
            }
            reports.append(_report(session, settings, results, peak_memory()))
        if not as_json:
            _print(settings, results, markdown=markdown)
        if not whole:
            break
    if as_json:
        print(json.dumps(reports[0] if len(reports) == 1 else reports))


def _temperatures(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--temp takes numbers with commas between, not {text!r}") from None


def _limited(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    if limit is None:
        return prompts
    seen: dict[str, int] = {}
    chosen = []
    for prompt in prompts:
        seen[prompt.category] = seen.get(prompt.category, 0) + 1
        if seen[prompt.category] <= limit:
            chosen.append(prompt)
    return chosen


def _measure(
    session: Session, prompts: list[Prompt], max_tokens: int, seed: int, *, show: bool
) -> tuple[list[Pair], bool]:
    """The pairs, and whether all were measured: Ctrl-C ends it between two answers."""
    from spec_cpu.benchmark import run
    from spec_cpu_cli.interrupt import Interrupt
    from spec_cpu_cli.progress import progress_bar

    pairs: list[Pair] = []
    with progress_bar(show=show) as report, Interrupt() as interrupt:
        for pair in run(
            session,
            prompts,
            max_tokens=max_tokens,
            seed=seed,
            progress=lambda _category, done, total: report("plain and speculative", done, total),
        ):
            pairs.append(pair)
            if interrupt.requested:
                return pairs, False
    return pairs, True


def _report(
    session: Session, settings: dict[str, Any], results: Mapping[str, Result], memory: int
) -> dict[str, Any]:
    categories = {name: asdict(result) for name, result in results.items()}
    return {
        "target": asdict(session.target.info),
        "draft": asdict(session.drafter.model.info) if session.drafter else None,
        "settings": settings,
        "peak_memory": memory,
        "overall": categories.pop("overall"),
        "categories": categories,
        "notices": session.notices,
    }


def _cells(name: str, result: Result) -> list[str]:
    def number(value: float | None, form: str = ".2f") -> str:
        return "-" if value is None else format(value, form)

    speedup = result.speedup
    return [
        name,
        str(result.prompts),
        number(result.tokens_per_second, ".1f"),
        number(result.plain_tokens_per_second, ".1f"),
        number(speedup.median),
        f"{speedup.low:.2f}-{speedup.high:.2f}",
        number(result.alpha),
        number(result.alpha_exact),
        number(result.tokens_per_cycle),
        str(result.k),
        number(result.speedup_theory),
        number(result.speedup_textbook),
        *(
            f"{share:.0%}"
            for share in (result.share_draft, result.share_target, result.share_sample)
        ),
    ]


def _print(settings: dict[str, Any], results: Mapping[str, Result], *, markdown: bool) -> None:
    pinned = "chosen each cycle" if settings["k"] is None else settings["k"]
    title = (
        f"temperature {settings['temperature']:g}, k {pinned}, {settings['max_tokens']} tokens, "
        f"{settings['threads']} threads"
        + ("" if settings["complete"] else " (interrupted: what there is)")
    )
    header = [*_COLUMNS, *_MORE]
    rows = [_cells(name, result) for name, result in results.items()]
    if markdown:
        print(f"\n{title}\n")
        for row in (header, ["---"] * len(header), *rows):
            print(f"| {' | '.join(row)} |")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None)
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(title, style="bold")
    console.print(table, "")
