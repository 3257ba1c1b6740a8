"""The options that several commands share, each once, and the session that they describe."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.arguments import expanded
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.pairing import ModelChoice, choose_models

if TYPE_CHECKING:
    from spec_cpu.sampling.pipeline import SamplingParams
    from spec_cpu.session import Session


def help_alone(context: typer.Context) -> None:
    """For a group of commands: called without one, it shows its help."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def home(path: Path | list[Path] | None) -> Path | list[Path] | None:
    """For every option that takes a path: `~` is the home folder, also where no shell saw it."""
    if isinstance(path, list):
        return [expanded(one) for one in path]
    return None if path is None else expanded(path)


_MODELS, _DRAFTING, _SAMPLING, _OUTPUT = "Models", "Drafting", "Sampling", "Output"
MEMORY_ON, MEMORY_OFF = "on", "off"

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        "-t",
        help="How many threads compute.",
        show_default="one a free core",
        rich_help_panel=_MODELS,
    ),
]
Kernels = Annotated[
    str,
    typer.Option(
        "--kernels",
        help="Our own matrix products: `auto` (or what SPEC_CPU_KERNELS says), `on`, `off`.",
        rich_help_panel=_MODELS,
    ),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, help="The most tokens that an answer may have.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="The text and nothing else.", rich_help_panel=_OUTPUT)
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show llama.cpp's log.", rich_help_panel=_OUTPUT)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which models, and how they run: of every command that loads some."""

    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-m",
            help="The model: a GGUF file or a catalogue name.",
            show_default="the --pair's",
            rich_help_panel=_MODELS,
        ),
    ] = None
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            "-d",
            help="A small model of the same family, likewise, or a draft head made for the target; "
            "`ngram` to draft from the text itself; `ngram,MODEL` for both; `none` for plain "
            "decoding.",
            show_default="ngram for a --target, both for a --pair",
            rich_help_panel=_MODELS,
        ),
    ] = None
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair",
            help="Target and draft from the catalogue.",
            show_default=defaults.PAIR,
            rich_help_panel=_MODELS,
        ),
    ] = None
    ctx: Annotated[
        int | None,
        typer.Option(
            "--ctx",
            "-c",
            help="Tokens of context.",
            show_default=f"the model's, at most {defaults.CONTEXT}",
            rich_help_panel=_MODELS,
        ),
    ] = None
    draft_ctx: Annotated[
        int | None,
        typer.Option(
            "--draft-ctx",
            help="The draft's context; a smaller one slides.",
            show_default="as --ctx",
            rich_help_panel=_MODELS,
        ),
    ] = None
    threads: Threads = None
    kernels: Kernels = defaults.KERNELS
    recalibrate: Annotated[
        bool,
        typer.Option(
            "--recalibrate",
            help="Time this machine again.",
            rich_help_panel=_MODELS,
        ),
    ] = False
    quiet: Quiet = False
    verbose: Verbose = False

    @property
    def choice(self) -> ModelChoice:
        """The models that are meant. Raises UsageError for options that do not fit together."""
        return choose_models(self.target, self.draft, self.pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOptions:
    """How drafts are made and verified."""

    draft_tokens: Annotated[
        int | None,
        typer.Option(
            "--draft-tokens",
            "-k",
            help="Tokens drafted a step (k).",
            show_default="chosen by what pays here",
            rich_help_panel=_DRAFTING,
        ),
    ] = None
    shape: Annotated[
        str,
        typer.Option(
            "--shape",
            help="What a draft model proposes: a `chain` of drawn tokens, a `tree` of the "
            "likeliest ones; `auto`: a tree at --temp 0.",
            rich_help_panel=_DRAFTING,
        ),
    ] = defaults.SHAPE
    lookup: Annotated[
        list[Path] | None,
        typer.Option(
            "--lookup",
            callback=home,
            help="A text for `--draft ngram` to draft from as well, such as one that is to be "
            "rewritten. May be repeated.",
            rich_help_panel=_DRAFTING,
        ),
    ] = None
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            help="How drafts are verified: `block` or `token`, both exact, or `typical`: it keeps "
            "more tokens, but does NOT preserve the target's distribution.",
            rich_help_panel=_DRAFTING,
        ),
    ] = defaults.RULE


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn."""

    temp: Annotated[
        float, typer.Option("--temp", help="Temperature; 0 is greedy.", rich_help_panel=_SAMPLING)
    ] = defaults.TEMPERATURE
    top_k: Annotated[int, typer.Option("--top-k", help="0 is off.", rich_help_panel=_SAMPLING)] = (
        defaults.TOP_K
    )
    top_p: Annotated[
        float, typer.Option("--top-p", help="1 is off.", rich_help_panel=_SAMPLING)
    ] = defaults.TOP_P
    min_p: Annotated[
        float, typer.Option("--min-p", help="0 is off.", rich_help_panel=_SAMPLING)
    ] = defaults.MIN_P
    repeat_penalty: Annotated[
        float, typer.Option("--repeat-penalty", help="1 is off.", rich_help_panel=_SAMPLING)
    ] = defaults.REPEAT_PENALTY
    frequency_penalty: Annotated[
        float, typer.Option("--frequency-penalty", help="0 is off.", rich_help_panel=_SAMPLING)
    ] = defaults.FREQUENCY_PENALTY
    presence_penalty: Annotated[
        float, typer.Option("--presence-penalty", help="0 is off.", rich_help_panel=_SAMPLING)
    ] = defaults.PRESENCE_PENALTY
    repeat_last_n: Annotated[
        int,
        typer.Option(
            "--repeat-last-n",
            help="How many of the last tokens penalties look at; -1 is all.",
            rich_help_panel=_SAMPLING,
        ),
    ] = defaults.PENALTY_LAST_N
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            "--logit-bias",
            help="TOKEN_ID=BIAS, added to a logit; -inf forbids. May be repeated.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="Of all random draws: the same seed gives the same text.",
            show_default="a new one",
            rich_help_panel=_SAMPLING,
        ),
    ] = None

    @property
    def params(self) -> SamplingParams:
        """The sampling flags as the library takes them. Raises UsageError for a bad one."""
        from spec_cpu.sampling.pipeline import SamplingParams

        return SamplingParams(
            temperature=self.temp,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            penalty_last_n=self.repeat_last_n,
            logit_bias=dict(map(_parse_bias, self.logit_bias or ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What an answer begins with, where it ends, and how it is shown."""

    system: Annotated[
        str | None,
        typer.Option("--system", help="A system turn to begin with.", show_default="none"),
    ] = None
    max_tokens: MaxTokens = defaults.MAX_TOKENS
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop",
            help="End the answer before this text, or control token (`<|im_end|>`). May be "
            "repeated.",
        ),
    ] = None
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos", help="Go on where the model would stop, but for what --stop names."
        ),
    ] = False
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="FILE|on|off",
            help="Keep what is said for `--draft ngram` to draft from in later runs: in a file, or "
            "in the target's own one (`on`; see `spec-cpu memory`).",
            show_default="off; in chat on, unless there is a --seed",
            rich_help_panel=_DRAFTING,
        ),
    ] = None
    color: Annotated[
        bool,
        typer.Option(
            "--color",
            help="Tint tokens on a terminal: accepted green, corrected yellow, bonus cyan.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False


def _parse_bias(text: str) -> tuple[int, float]:
    token, equals, bias = text.partition("=")
    try:
        if equals:
            return int(token), float(bias)
    except ValueError:
        pass
    raise UsageError(f"--logit-bias takes TOKEN_ID=BIAS, such as 42=-inf, not {text!r}")


def open_session(
    choice: ModelChoice,
    models: ModelOptions,
    drafting: DraftOptions,
    sampling: SamplingParams,
    *,
    seed: int | None = None,
    system: str | None = None,
    memory: str | None = None,
) -> Session:
    """Fetch and load the chosen models, with bars for both unless they are to be quiet."""
    if drafting.lookup and not choice.drafts.ngram:
        raise UsageError(f"--lookup needs --draft {defaults.NGRAM}")
    if memory not in (None, MEMORY_OFF) and not choice.drafts.ngram:
        raise UsageError(f"--memory needs --draft {defaults.NGRAM}")
    from spec_cpu.llama import log
    from spec_cpu.loading import load
    from spec_cpu.models.fetch import resolve
    from spec_cpu_cli.interrupt import Interrupt
    from spec_cpu_cli.progress import download_progress, progress_bar

    log.set_verbose(models.verbose)
    log.on_abort(_leave)
    with download_progress(show=not models.quiet) as report:
        target = resolve(choice.target, report) if isinstance(choice.target, str) else choice.target
        drafts = choice.drafts
        if isinstance(drafts.model, str):
            drafts = replace(drafts, model=resolve(drafts.model, report))
    with progress_bar(show=not models.quiet) as report, Interrupt() as interrupt:
        session = load(
            target,
            drafts,
            ctx=models.ctx,
            draft_ctx=models.draft_ctx,
            threads=models.threads,
            kernels=models.kernels,
            k=drafting.draft_tokens,
            shape=drafting.shape,
            rule=drafting.rule,
            sampling=sampling,
            seed=seed,
            system=system,
            lookup=drafting.lookup or (),
            memory=_memory_file(memory, target),
            recalibrate=models.recalibrate,
            progress=interrupt.checked(report),
        )
    interrupt.check()  # out here: by now its thread has read whatever came while loading
    if choice.notice and session.sources:
        session.notices.insert(0, choice.notice)
    return session


def _memory_file(memory: str | None, target: Path) -> Path | None:
    from spec_cpu.draft.memory import memory_file
    from spec_cpu.llama.model import Model

    if memory is None or memory == MEMORY_OFF:
        return None
    if memory == MEMORY_ON:
        return memory_file(Model.fingerprint_of(target))
    return expanded(Path(memory))


def _leave(reason: str) -> None:
    """llama.cpp is about to abort: one line of ours instead of a core dump."""
    print(
        f"spec-cpu: llama.cpp cannot go on ({reason}): the model's file is damaged, or not one it "
        "can run",
        file=sys.stderr,
    )
    sys.stdout.flush()
    os._exit(SpecCpuError.exit_code)
