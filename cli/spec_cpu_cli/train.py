"""`spec-cpu train`: a draft head for a target, from what the target itself says."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.errors import UsageError
from spec_cpu_cli import completion
from spec_cpu_cli import options as opt
from spec_cpu_cli.command import OUTPUT

if TYPE_CHECKING:
    from rich.table import Table

    from spec_cpu.train.measure import Evaluation
    from spec_cpu.train.recipe import Tick
    from spec_cpu.train.work import Asked, Work

_STEPS = ("generate", "train", "evaluate")
_EVALUATE_SHARE = 0.03  # of the hours, at each temperature
_LEGEND = (
    "Accepted: of the first guess of a step, the second, ... Speedup: what spec-cpu plan expects."
)
_BUDGET, _DATA = "Budget", "Data"


def train(
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", callback=opt.home, metavar="FILE", help="The file to write the head to."
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-m",
            autocompletion=completion.targets,
            metavar="MODEL",
            help="The model to train it for: a GGUF file, or a name.",
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="eagle|medusa", help="The kind of head.", show_default="eagle"
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours",
            help="How many hours all of it may take.",
            show_default="1",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            help="Learn from this many tokens, instead: the same seed then gives the same head. "
            f"In steps of {defaults.TRAIN_SEQUENCES * defaults.TRAIN_LENGTH:,}.",
            show_default="by --hours",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            "--epochs",
            help="How often to go through the data.",
            show_default=f"{defaults.TRAIN_EPOCHS:g}, or what the hours are enough for",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            callback=opt.home,
            metavar="FILE",
            help="What half of the conversations begin with: a line of JSON each, with turns or a "
            "prompt.",
            show_default="the model makes them up",
            rich_help_panel=_DATA,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            callback=opt.home,
            metavar="FOLDER",
            help="The folder to work in; what is done there is not done again.",
            show_default="OUT.work",
            rich_help_panel=_DATA,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help="One step: `generate`, `train` or `evaluate`.", show_default="all"
        ),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            "--vocabulary",
            help="How many different tokens the head can guess.",
            show_default=str(defaults.TRAIN_VOCABULARY),
        ),
    ] = None,
    quantization: Annotated[
        str, typer.Option("--quantization", metavar="Q8_0|Q4_0|F16", help="How the head is stored.")
    ] = "Q8_0",
    threads: opt.Threads = None,
    preset: opt.Preset = None,
    kernels: opt.Kernels = defaults.KERNELS,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Of what is drawn at random.", show_default="0"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: opt.Quiet = False,
    llama_log: opt.LlamaLog = False,
) -> None:
    """Train a small head that guesses ahead for a model, on this machine.

    The model talks to itself, and the head learns from that what comes next; in the end it is tried
    on texts that it has not seen. Ctrl-C stops; the same command goes on from there.
    """
    from spec_cpu.train.installed import check_installed

    check_installed()
    _check_options(out, kind, only, quantization)
    asked = _asked(kind, seed, vocabulary, hours, tokens, prompts, epochs)
    path = _target(target, llama_log=llama_log, show=not quiet)
    folder = resume or out.with_name(f"{out.name}.work")
    work = _work(folder, path, asked)
    try:
        result = _run(path, work, out, quantization, only, threads, kernels, show=not quiet)
    except KeyboardInterrupt:
        message = (
            f"stopped; what is finished is in {folder}: the same command goes on from there, and "
            "begins anew only the part that was under way"
        )
        print(f"spec-cpu: {message}", file=sys.stderr)
        raise
    if result is not None:
        _show(result, work, out, as_json=as_json, quiet=quiet)
    elif not quiet:
        print(f"the step is done; what there is: {folder}", file=sys.stderr)


def _check_options(out: Path, kind: str | None, only: str | None, quantization: str) -> None:
    """Find out, before anything is generated, whether a head can be made and written."""
    from spec_cpu.heads.container import QUANTIZATIONS
    from spec_cpu.train.learner import check_kind
    from spec_cpu_cli.plots import check_folder

    if kind is not None:
        check_kind(kind)
    if only is not None and only not in _STEPS:
        raise UsageError(f"--only takes one of {', '.join(_STEPS)}, not {only}")
    if quantization not in QUANTIZATIONS:
        raise UsageError(
            f"quantization must be one of {', '.join(QUANTIZATIONS)}, not {quantization}"
        )
    if out.is_dir():
        raise UsageError(f"{out} is a directory: give --out the name of a file")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a pipe or a device: give --out the name of a file")
    check_folder(out.parent)


def _asked(
    kind: str | None,
    seed: int | None,
    vocabulary: int | None,
    hours: float | None,
    tokens: int | None,
    prompts: Path | None,
    epochs: float | None,
) -> Asked:
    from spec_cpu.bench.arms import read_prompts
    from spec_cpu.train.work import Asked

    turns = None if prompts is None else [list(one.turns) for one in read_prompts(prompts)]
    return Asked(kind, seed, vocabulary, hours, tokens, turns, epochs)


def _target(name: str, *, llama_log: bool, show: bool) -> Path:
    from spec_cpu.heads.file import check_writes
    from spec_cpu.llama import log
    from spec_cpu.models.fetch import resolve
    from spec_cpu_cli.progress import download_progress

    log.set_verbose(llama_log)
    with download_progress(show=show) as report:
        path = resolve(name, report)
    check_writes(path)
    return path


def _work(folder: Path, target: Path, asked: Asked) -> Work:
    from spec_cpu.llama.model import Model
    from spec_cpu.train.work import open_work

    return open_work(folder, target.name, Model.fingerprint_of(target), asked)


def _run(
    target: Path,
    work: Work,
    out: Path,
    quantization: str,
    only: str | None,
    threads: int | None,
    kernels: str,
    *,
    show: bool,
) -> Evaluation | None:
    """The steps, or the one that is asked for."""
    from spec_cpu.train import measure, recipe
    from spec_cpu_cli.interrupt import Interrupt
    from spec_cpu_cli.training_view import training_view

    with training_view(show=show) as view, Interrupt() as interrupt:

        def tick(tick: Tick) -> None:
            view.tick(tick)
            interrupt.check()

        progress = interrupt.checked(view.report)
        how = recipe.How(threads, kernels, tick, progress, view.note)
        if only in (None, "generate"):
            recipe.generate(target, work, how)
        if only in (None, "train"):
            recipe.train(target, work, out, quantization, how)
        if only not in (None, "evaluate"):
            return None
        return measure.evaluate(
            target,
            out,
            work.held_out,
            threads=threads,
            kernels=kernels,
            seed=work.seed,
            seconds=None if work.hours is None else work.hours * 3600 * _EVALUATE_SHARE,
            progress=progress,
        )


def _show(result: Evaluation, work: Work, out: Path, *, as_json: bool, quiet: bool) -> None:
    from spec_cpu_cli.answer import show_notices

    if not quiet:
        show_notices(result.notices)
    if as_json:
        settings = {"kind": work.kind, "seed": work.seed, "epochs": work.epochs}
        record = {"head": str(out), **settings, "seconds": work.spent, **asdict(result)}
        print(json.dumps(record))
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(_table(result))
    console.print(_LEGEND, highlight=False)
    console.print(f"{out}: try it with --draft {out}", markup=False, soft_wrap=True)


def _table(result: Evaluation) -> Table:
    from rich.table import Table

    table = Table(
        "temperature", "accepted", "tokens per step", "best number of guesses", "speedup", box=None
    )
    table.title = f"On {result.prompts} prompts that it did not learn from"
    table.title_justify = "left"
    for one in result.measured:
        alphas = " ".join(f"{alpha:.2f}" for alpha in one.alpha)
        row = (f"{one.temperature:g}", alphas, f"{one.tokens:.2f}", str(one.k))
        table.add_row(*row, f"{one.speedup:.2f}x")
    return table
