"""`spec-cpu bench`: plain and speculative decoding, and more, in turn on the same prompts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu_cli import options as opt
from spec_cpu_cli.command import OUTPUT, given
from spec_cpu_cli.signature import with_options

if TYPE_CHECKING:
    from spec_cpu.bench.arms import Pin, Prompt, Round
    from spec_cpu.bench.rivals import Setting
    from spec_cpu.costs.costs import Costs
    from spec_cpu.sampling.pipeline import SamplingParams
    from spec_cpu.session import Session
    from spec_cpu_cli.bench_report import Report

_MORE = "Measure more"
_SWEEP = re.compile(r"k=(\d+)\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to measure at each temperature.

    Attributes:
        pins: the session's arms: the speculative one, the plain one, those of the sweep.
    """

    prompts: list[Prompt]
    pins: list[Pin]
    sweep: list[int]
    against: list[str]
    llama_cpp: Path | None
    max_tokens: int
    seed: int

    def max_width(self, session: Session) -> int:
        """Tokens in the widest pass whose cost has to be known."""
        return 1 + max(session.most_drafted, *(pin or 0 for pin in self.pins))


@dataclass(slots=True)
class _Measured:
    """What came of it; `rivals` by name, `disturbed` as in `Report`."""

    costs: Costs
    rivals: list[str]
    rounds: list[Round] = field(default_factory=list)
    complete: bool = True
    disturbed: str | None = None


@with_options
def bench(
    context: typer.Context,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            callback=opt.home,
            metavar="FILE",
            help="What to answer: a line of JSON each, with a category, and turns or a prompt.",
            show_default="40 of eight kinds, which come with spec-cpu",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, help="The most prompts of each category.", show_default="all"
        ),
    ] = None,
    max_tokens: opt.MaxTokens = defaults.BENCH_TOKENS,
    temps: Annotated[
        str,
        typer.Option(
            "--temp", metavar="LIST", help="One temperature or several, with commas between."
        ),
    ] = defaults.BENCH_TEMPERATURES,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="The same seed gives the same texts.")
    ] = 1,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="k=A..B",
            help="Also measure each of these numbers of tokens to guess ahead, up to "
            f"{defaults.MAX_SWEEP}: k=1..8, say.",
            show_default="none",
            rich_help_panel=_MORE,
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="PROGRAM",
            help="Measure `llama.cpp` or `llama-cpp-python` beside it. May be repeated.",
            show_default="none",
            rich_help_panel=_MORE,
        ),
    ] = None,
    llama_cpp: Annotated[
        Path | None,
        typer.Option(
            "--llama-cpp",
            callback=opt.home,
            metavar="FOLDER",
            envvar="SPEC_CPU_LLAMA_CPP",
            help="The folder of llama.cpp's programs.",
            show_default="none",
            rich_help_panel=_MORE,
        ),
    ] = None,
    plot: Annotated[
        bool,
        typer.Option("--plot", help="Write PNG files, to --out or here.", rich_help_panel=OUTPUT),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=opt.home,
            metavar="FOLDER",
            help="Write bench.json and bench.md to this folder.",
            show_default="nowhere",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print tables in Markdown.", rich_help_panel=OUTPUT)
    ] = False,
    *,
    models: opt.ModelOptions,
    drafting: opt.DraftOptions,
) -> None:
    """Measure how much faster guessing ahead is here, than the model alone on the same prompts.

    Each prompt is answered both ways. How many times as fast it was is the median over the prompts,
    with the range that it lies in for 95 %. Ctrl-C prints what there is.
    """
    from spec_cpu.bench.arms import PLAIN, SHIPPED, read_prompts
    from spec_cpu.bench.rivals import LLAMA_CPP, check_rivals
    from spec_cpu.sampling.pipeline import SamplingParams

    choice, quiet = models.choice, models.quiet
    if not choice.drafts:
        raise UsageError("bench compares a draft with none: give --draft or --pair")
    ks = _sweep(sweep)
    samplings = [SamplingParams(temperature=temperature) for temperature in _temperatures(temps)]
    asked = _Asked(
        prompts=_limited(read_prompts(prompts or SHIPPED), limit),
        pins=list(dict.fromkeys([drafting.draft_tokens, PLAIN, *ks])),
        sweep=ks,
        against=list(dict.fromkeys(against or [])),
        llama_cpp=llama_cpp,
        max_tokens=max_tokens,
        seed=seed,
    )
    if "llama_cpp" in given(context) and LLAMA_CPP not in asked.against:
        raise UsageError(f"--llama-cpp needs --against {LLAMA_CPP}, which measures its programs")
    check_rivals(asked.against, llama_cpp)
    _check_output(out, plot)
    load = partial(opt.open_session, choice, models, drafting)
    reports: list[Report] = []
    written: list[Path] = []
    for report in _reports(load, samplings, asked, show=not quiet):
        reports.append(report)
        if not as_json:
            _print(report, markdown=markdown)
        written += _write(reports, out, plot)
    if as_json:
        print(_json(reports))
    if written and not quiet:
        print(f"wrote {', '.join(map(str, dict.fromkeys(written)))}", file=sys.stderr)


def _sweep(text: str | None) -> list[int]:
    """The k of `k=A..B`."""
    if text is None:
        return []
    if found := _SWEEP.fullmatch(text):
        first, last = map(int, found.groups())
        if 1 <= first <= last <= defaults.MAX_SWEEP:
            return list(range(first, last + 1))
    raise UsageError(
        f"--sweep takes k=A..B with A from 1 and B up to {defaults.MAX_SWEEP}, such as k=1..8, "
        f"not {text!r}"
    )


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


def _check_output(out: Path | None, plot: bool) -> None:
    """Find out, before anything is measured, whether the files can be written."""
    from spec_cpu_cli.plots import check_folder, check_matplotlib

    if plot:
        check_matplotlib()
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecCpuError(f"cannot make the folder {out}: {error.strerror}") from None
    if plot or out is not None:
        check_folder(out or Path())


def _reports(
    load: Callable[[SamplingParams], Session],
    samplings: list[SamplingParams],
    asked: _Asked,
    *,
    show: bool,
) -> Iterator[Report]:
    """One for each temperature, until Ctrl-C; KeyboardInterrupt: before there was any."""
    complete = False
    for sampling in samplings:
        try:
            with load(sampling) as session:
                report = _report(session, asked, sampling.temperature, show=show)
        except KeyboardInterrupt:
            if not complete:
                raise
            return
        complete = report.settings["complete"]
        yield report
        if not complete:
            return


def _report(session: Session, asked: _Asked, temperature: float, *, show: bool) -> Report:
    from spec_cpu.bench import results
    from spec_cpu_cli.bench_report import Report

    if not session.sources:
        why = session.notices[-1] if session.notices else "-k 0 drafts nothing"
        raise UsageError(f"bench compares a draft with none: {why}")
    model = session.draft_model
    heads = any(one.by_features for one in session.sources)  # that other programs cannot run
    draft = model.path if model and not heads else None
    setting = _setting(session, draft, asked, temperature)
    measured = _measure(session, asked, setting, show=show)
    rounds, pin = measured.rounds, asked.pins[0]
    return Report(
        target=asdict(session.target.info),
        draft=asdict(model.info) if model else None,
        settings={
            "temperature": temperature,
            "k": pin,
            "shape": session.shape,
            "rule": session.rule,
            "exact": session.exact,
            "max_tokens": asked.max_tokens,
            "threads": session.threads,
            "kernels": session.kernels,
            "servers": [str(server) for server in session.target.servers],
            "seed": asked.seed,
            "complete": measured.complete,
        },
        peak_memory=results.peak_memory(),
        results=results.summarize(rounds, pin),
        costs=measured.costs,
        sweep=results.sweep(rounds, asked.sweep, measured.costs),
        against=results.compare(rounds, measured.rivals, pin),
        notices=session.notices,
        disturbed=measured.disturbed or measured.costs.disturbed or None,
    )


def _setting(session: Session, draft: Path | None, asked: _Asked, temperature: float) -> Setting:
    from spec_cpu.bench.rivals import DRAFT_TOKENS, Setting

    return Setting(
        target=session.target.path,
        draft=draft,
        ctx=session.n_ctx,
        threads=session.threads,
        temperature=temperature,
        draft_tokens=asked.pins[0] or DRAFT_TOKENS,
        end_tokens=session.target.vocab.end_tokens,
    )


def _measure(session: Session, asked: _Asked, setting: Setting, *, show: bool) -> _Measured:
    """What passes cost, then round after round. Ctrl-C ends it; KeyboardInterrupt: before any."""
    from spec_cpu.bench.arms import run
    from spec_cpu.bench.rivals import open_rivals
    from spec_cpu.machine.disturbance import disturbance, spent
    from spec_cpu_cli.interrupt import Interrupt
    from spec_cpu_cli.progress import progress_bar

    with ExitStack() as stack:
        report = stack.enter_context(progress_bar(show=show))
        report = stack.enter_context(Interrupt()).checked(report)
        width = asked.max_width(session)
        depth = max(1, min(defaults.PLAN_DEPTH, session.n_ctx - width - 1))
        costs = session.calibrate(width, depth=depth, progress=report)
        rivals = stack.enter_context(open_rivals(asked.against, asked.llama_cpp, setting))
        measured = _Measured(costs, [rival.name for rival in rivals])
        begun = spent()
        try:
            for one in run(
                session,
                asked.prompts,
                pins=asked.pins,
                rivals=rivals,
                max_tokens=asked.max_tokens,
                seed=asked.seed,
                progress=lambda done, total: report("every arm in turn", done, total),
            ):
                measured.rounds.append(one)
        except KeyboardInterrupt:
            if not measured.rounds:
                raise
            measured.complete = False
        if not rivals:  # which are other programs themselves
            measured.disturbed = disturbance(begun, spent(), session.threads)
    return measured


def _json(reports: Sequence[Report]) -> str:
    from spec_cpu_cli.bench_report import as_json

    objects = [as_json(report) for report in reports]
    return json.dumps(objects[0] if len(objects) == 1 else objects)


def _print(report: Report, *, markdown: bool) -> None:
    from spec_cpu_cli import bench_report

    tables = bench_report.sections(report)
    if markdown:
        print(bench_report.markdown(tables))
    else:
        bench_report.show(tables)


def _write(reports: Sequence[Report], out: Path | None, plot: bool) -> list[Path]:
    """Write what there is so far, so that a later failure does not lose it; the files."""
    from spec_cpu_cli.bench_plots import write_plots
    from spec_cpu_cli.bench_report import markdown, sections

    written: list[Path] = []
    if out is not None:
        tables = "\n".join(markdown(sections(report)) for report in reports)
        for name, text in (("bench.json", _json(reports) + "\n"), ("bench.md", tables)):
            _write_text(out / name, text)
            written.append(out / name)
    if plot:
        written += write_plots(reports[-1], out or Path())
    return written


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecCpuError(f"cannot write {path}: {error.strerror}") from None
