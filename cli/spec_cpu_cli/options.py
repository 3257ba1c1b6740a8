"""The options that `run` and `chat` share, and the session they describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.arguments import expanded
from spec_cpu.choice import ModelChoice
from spec_cpu.errors import SpecCpuError, UsageError

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

Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-m",
        help="The model: a GGUF file or a catalogue name.  [default: the --pair's]",
        rich_help_panel=_MODELS,
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        "-d",
        help="A small model of the same family, likewise, or a draft head made for the target; "
        "`ngram` to draft from the text itself, the default for a --target; `ngram,MODEL` for "
        "whichever is better; `none` to decode "
        "plainly.",
        rich_help_panel=_MODELS,
    ),
]
Pair = Annotated[
    str | None,
    typer.Option(
        "--pair",
        help=f"Target and draft from the catalogue.  [default: {defaults.PAIR}]",
        rich_help_panel=_MODELS,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--ctx",
        "-c",
        help=f"Tokens of context.  [default: the model's, at most {defaults.CONTEXT}]",
        rich_help_panel=_MODELS,
    ),
]
DraftContext = Annotated[
    int | None,
    typer.Option(
        "--draft-ctx",
        help="The draft's context; a smaller one slides.  [default: as --ctx]",
        rich_help_panel=_MODELS,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        "-t",
        help="Threads that compute.  [default: one a free core]",
        rich_help_panel=_MODELS,
    ),
]
DraftTokens = Annotated[
    int | None,
    typer.Option(
        "--draft-tokens",
        "-k",
        help="Tokens drafted a cycle (k).  [default: chosen by what pays here]",
        rich_help_panel=_DRAFTING,
    ),
]
Shape = Annotated[
    str,
    typer.Option(
        "--shape",
        help="What a draft model proposes: a `chain` of drawn tokens, a `tree` of the likeliest "
        "ones; `auto`: a tree at --temp 0.",
        rich_help_panel=_DRAFTING,
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
Recalibrate = Annotated[
    bool,
    typer.Option(
        "--recalibrate", help="Measure what passes cost here anew.", rich_help_panel=_DRAFTING
    ),
]
Lookup = Annotated[
    list[Path] | None,
    typer.Option(
        "--lookup",
        callback=home,
        help="A text for `--draft ngram` to draft from as well, such as one that is to be "
        "rewritten. May be repeated.",
        rich_help_panel=_DRAFTING,
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        "--rule",
        help="How drafts are verified: `block` or `token`, both exact, or `typical`: it keeps more "
        "tokens, but does NOT preserve the target's distribution.",
        rich_help_panel=_DRAFTING,
    ),
]
System = Annotated[
    str | None, typer.Option("--system", help="A system turn to begin with.  [default: none]")
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, help="At most so many tokens an answer.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        help="End the answer before this text, or control token (`<|im_end|>`). May be repeated.",
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos", help="Go on where the model would stop, but for what --stop names."
    ),
]
Temperature = Annotated[
    float, typer.Option("--temp", help="Temperature; 0 is greedy.", rich_help_panel=_SAMPLING)
]
TopK = Annotated[int, typer.Option("--top-k", help="0 is off.", rich_help_panel=_SAMPLING)]
TopP = Annotated[float, typer.Option("--top-p", help="1 is off.", rich_help_panel=_SAMPLING)]
MinP = Annotated[float, typer.Option("--min-p", help="0 is off.", rich_help_panel=_SAMPLING)]
RepeatPenalty = Annotated[
    float, typer.Option("--repeat-penalty", help="1 is off.", rich_help_panel=_SAMPLING)
]
FrequencyPenalty = Annotated[
    float, typer.Option("--frequency-penalty", help="0 is off.", rich_help_panel=_SAMPLING)
]
PresencePenalty = Annotated[
    float, typer.Option("--presence-penalty", help="0 is off.", rich_help_panel=_SAMPLING)
]
RepeatLastN = Annotated[
    int,
    typer.Option(
        "--repeat-last-n",
        help="Penalties look at so many last tokens; -1 is all.",
        rich_help_panel=_SAMPLING,
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        help="TOKEN_ID=BIAS, added to a logit; -inf forbids. May be repeated.",
        rich_help_panel=_SAMPLING,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Of all random draws: the same seed gives the same text.  [default: a new one]",
        rich_help_panel=_SAMPLING,
    ),
]
Color = Annotated[
    bool,
    typer.Option(
        "--color",
        help="Tint tokens on a terminal: accepted green, corrected yellow, bonus cyan.",
        rich_help_panel=_OUTPUT,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="The text and nothing else.", rich_help_panel=_OUTPUT)
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show llama.cpp's log.", rich_help_panel=_OUTPUT)
]


def sampling_params(
    *,
    temp: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repeat_penalty: float,
    frequency_penalty: float,
    presence_penalty: float,
    repeat_last_n: int,
    logit_bias: Sequence[str] | None,
) -> SamplingParams:
    """The sampling flags as the library takes them. Raises UsageError for a bad one."""
    from spec_cpu.sampling.pipeline import SamplingParams

    return SamplingParams(
        temperature=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        penalty_last_n=repeat_last_n,
        logit_bias=dict(map(_parse_bias, logit_bias or ())),
    )


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
    *,
    ctx: int | None,
    draft_ctx: int | None,
    threads: int | None,
    kernels: str,
    k: int | None,
    shape: str,
    rule: str,
    sampling: SamplingParams,
    seed: int | None,
    system: str | None,
    lookup: Sequence[Path] | None,
    recalibrate: bool,
    verbose: bool,
    progress: bool,
) -> Session:
    """Fetch and load the chosen models, with bars for both if `progress` is set."""
    if lookup and not choice.drafts.ngram:
        raise UsageError(f"--lookup needs --draft {defaults.NGRAM}")
    from spec_cpu.llama import log
    from spec_cpu.loading import load
    from spec_cpu.models.fetch import resolve
    from spec_cpu_cli.interrupt import Interrupt
    from spec_cpu_cli.progress import download_progress, progress_bar

    log.set_verbose(verbose)
    log.on_abort(_leave)
    with download_progress(show=progress) as report:
        target = resolve(choice.target, report)
        drafts = choice.drafts
        if isinstance(drafts.model, str):
            drafts = replace(drafts, model=resolve(drafts.model, report))
    with progress_bar(show=progress) as report, Interrupt() as interrupt:
        session = load(
            target,
            drafts,
            ctx=ctx,
            draft_ctx=draft_ctx,
            threads=threads,
            kernels=kernels,
            k=k,
            shape=shape,
            rule=rule,
            sampling=sampling,
            seed=seed,
            system=system,
            lookup=lookup or (),
            recalibrate=recalibrate,
            progress=interrupt.checked(report),
        )
        interrupt.check()
    if choice.notice and session.drafters:
        session.notices.insert(0, choice.notice)
    return session


def _leave(reason: str) -> None:
    """llama.cpp is about to abort: one line of ours instead of a core dump."""
    print(
        f"spec-cpu: llama.cpp cannot go on ({reason}): the model's file is damaged, or not one it "
        "can run",
        file=sys.stderr,
    )
    sys.stdout.flush()
    os._exit(SpecCpuError.exit_code)
