"""The options that several commands share, each once, and the session that they describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.arguments import expanded
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.pairing import ModelChoice, choose_models
from spec_cpu.rpc.servers import parse_servers
from spec_cpu_cli import completion
from spec_cpu_cli.command import DRAFTING, MODEL, OUTPUT, SELDOM, Preset
from spec_cpu_cli.sampling_options import SamplingOptions
from spec_cpu_cli.startup import ends_at_once

if TYPE_CHECKING:
    from spec_cpu.draft.names import Drafts
    from spec_cpu.progress import Progress
    from spec_cpu.sampling.pipeline import SamplingParams
    from spec_cpu.session import Session

__all__ = [
    "MOST_TOKENS",
    "SELDOM",
    "AnswerOptions",
    "AsJson",
    "DraftOptions",
    "Kernels",
    "LlamaLog",
    "MaxTokens",
    "ModelOptions",
    "Preset",
    "Quiet",
    "SamplingOptions",
    "Threads",
    "fetched",
    "help_alone",
    "home",
    "open_session",
]


def help_alone(context: typer.Context) -> None:
    """For a group of commands: called without one, it shows its help."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def home(path: Path | list[Path] | None) -> Path | list[Path] | None:
    """For every option that takes a path: `~` is the home folder, also where no shell saw it."""
    if isinstance(path, list):
        return [expanded(one) for one in path]
    return None if path is None else expanded(path)


def addresses(servers: str | None) -> str | None:
    """For --rpc: every address is one."""
    parse_servers(servers)
    return servers


def until_the_end(tokens: int) -> int:
    """For --max-tokens: -1 is no limit, as llama.cpp has it."""
    if tokens < 1 and tokens != -1:
        raise UsageError(f"--max-tokens must be at least 1, or -1 for no limit, not {tokens}")
    return MOST_TOKENS if tokens == -1 else tokens


MOST_TOKENS = 2**31 - 1  # more than any context holds: an answer ends by itself, or where it does
MEMORY_ON, MEMORY_OFF = "on", "off"

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        "-t",
        help="How many threads compute.",
        show_default="one for each free core",
        rich_help_panel=MODEL,
    ),
]
Kernels = Annotated[
    str,
    typer.Option(
        "--kernels",
        metavar="auto|on|off",
        help="Multiply with code made for this processor: `auto`: where it is faster.",
        rich_help_panel=SELDOM,
    ),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "-n",
        callback=until_the_end,
        help="The most tokens that an answer may have; -1: until it ends by itself.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="The text and nothing else.", rich_help_panel=OUTPUT)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LlamaLog = Annotated[
    bool, typer.Option("--llama-log", help="Show llama.cpp's log.", rich_help_panel=OUTPUT)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which models, and how they run: of every command that loads some."""

    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-m",
            "-hf",
            autocompletion=completion.targets,
            metavar="MODEL",
            help="The model that answers: a GGUF file, a name (see spec-cpu models list), or "
            "OWNER/NAME or OWNER/NAME:QUANT on the hub.",
            show_default="that of the --pair",
            rich_help_panel=MODEL,
        ),
    ] = None
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            "-d",
            "-md",
            autocompletion=completion.drafts,
            metavar="MODEL",
            help="What guesses ahead: a small model of the same family; `ngram`: what the text "
            "said before; `ngram,MODEL`: both; `none`: nothing.",
            show_default="ngram; for a --pair, both",
            rich_help_panel=MODEL,
        ),
    ] = None
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair",
            autocompletion=completion.pairs,
            metavar="NAME",
            help="Both models by one name (see spec-cpu models list).",
            show_default=defaults.PAIR,
            rich_help_panel=MODEL,
        ),
    ] = None
    ctx: Annotated[
        int | None,
        typer.Option(
            "--ctx",
            "-c",
            help="Tokens that prompt and answer may have together; 0: all that the model can.",
            show_default=f"the model's, at most {defaults.CONTEXT:,}",
            rich_help_panel=MODEL,
        ),
    ] = None
    draft_ctx: Annotated[
        int | None,
        typer.Option(
            "--draft-ctx",
            help="How many of the last tokens the --draft sees.",
            show_default="as --ctx",
            rich_help_panel=SELDOM,
        ),
    ] = None
    threads: Threads = None
    preset: Preset = None
    kernels: Kernels = defaults.KERNELS
    rpc: Annotated[
        str | None,
        typer.Option(
            "--rpc",
            callback=addresses,
            metavar="HOST:PORT,...",
            help="Other machines that compute the layers of the --target, with llama.cpp's RPC "
            "server. What passes between is not encrypted.",
            show_default="none",
            rich_help_panel=SELDOM,
        ),
    ] = None
    recalibrate: Annotated[
        bool,
        typer.Option(
            "--recalibrate",
            help="Time this machine again.",
            rich_help_panel=SELDOM,
        ),
    ] = False
    quiet: Quiet = False
    llama_log: LlamaLog = False

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
            help="Tokens to guess ahead.",
            show_default="automatic",
            rich_help_panel=DRAFTING,
        ),
    ] = None
    shape: Annotated[
        str,
        typer.Option(
            "--shape",
            metavar="auto|chain|tree",
            help="Guess one token after another (`chain`), or several ways to go on (`tree`); "
            "`auto`: a tree at --temp 0.",
            rich_help_panel=SELDOM,
        ),
    ] = defaults.SHAPE
    lookup: Annotated[
        list[Path] | None,
        typer.Option(
            "--lookup",
            callback=home,
            metavar="FILE",
            help="A text that the answer may repeat, to guess from. May be repeated.",
            show_default="none",
            rich_help_panel=DRAFTING,
        ),
    ] = None
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="block|token|typical",
            help="Which guesses stay: with `block` and `token` the answer is the model's own; "
            "`typical` keeps more, but the answer is NOT what the model alone would say.",
            rich_help_panel=SELDOM,
        ),
    ] = defaults.RULE


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What an answer begins with, where it ends, and how it is shown."""

    system: Annotated[
        str | None,
        typer.Option("--system", "-sys", help="System prompt.", show_default="none"),
    ] = None
    max_tokens: MaxTokens = defaults.MAX_TOKENS
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop",
            "-r",
            help="End the answer before this text. May be repeated.",
            show_default="none",
        ),
    ] = None
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos",
            help="Go on where the model would end, except at a --stop.",
            rich_help_panel=SELDOM,
        ),
    ] = False
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="FILE|on|off",
            help="Keep what is said, to guess from later: `on` in the model's own file (see "
            "spec-cpu memory), or in FILE.",
            show_default="off; in chat on, unless there is a --seed",
            rich_help_panel=DRAFTING,
        ),
    ] = None
    color: Annotated[
        bool,
        typer.Option(
            "--color",
            help="Colour tokens: guessed right green, guessed wrong magenta, one beyond them cyan.",
            rich_help_panel=OUTPUT,
        ),
    ] = False


def open_session(
    choice: ModelChoice,
    models: ModelOptions,
    drafting: DraftOptions,
    sampling: SamplingParams,
    *,
    seed: int | None = None,
    system: str | None = None,
    memory: str | None = None,
    prompt_cache: Path | None = None,
) -> Session:
    """Fetch and load the chosen models, with bars for both unless they are to be quiet."""
    check_looks_up(choice, lookup=drafting.lookup, memory=memory)
    with ends_at_once():
        from spec_cpu.loading import load

    target, drafts = fetched(choice, models)
    with loading(models) as progress:
        session = load(
            target,
            drafts,
            ctx=models.ctx,
            draft_ctx=models.draft_ctx,
            threads=models.threads,
            kernels=models.kernels,
            rpc=models.rpc,
            k=drafting.draft_tokens,
            shape=drafting.shape,
            rule=drafting.rule,
            sampling=sampling,
            seed=seed,
            system=system,
            lookup=drafting.lookup or (),
            memory=_memory_file(memory, target),
            prompt_cache=prompt_cache,
            recalibrate=models.recalibrate,
            progress=progress,
        )
    if choice.notice and session.sources:
        session.notices.insert(0, choice.notice)
    return session


@contextmanager
def loading(models: ModelOptions) -> Iterator[Progress]:
    """While models are loaded: a bar for it, unless it is to be quiet, and an ear for Ctrl-C."""
    with ends_at_once():
        from spec_cpu_cli.interrupt import Interrupt
        from spec_cpu_cli.progress import progress_bar

    with progress_bar(show=not models.quiet) as report, Interrupt() as interrupt:
        yield interrupt.checked(report)
    interrupt.check()  # out here: by now its thread has read whatever came while loading


def check_looks_up(
    choice: ModelChoice, *, lookup: list[Path] | None, memory: str | None = None
) -> None:
    """Raise UsageError for texts to guess from where none is looked into."""
    if choice.drafts.ngram:
        return
    if lookup:
        raise UsageError(f"--lookup needs --draft {defaults.NGRAM}")
    if memory not in (None, MEMORY_OFF):
        raise UsageError(f"--memory needs --draft {defaults.NGRAM}")


def fetched(choice: ModelChoice, models: ModelOptions) -> tuple[Path, Drafts]:
    """The chosen models as files, fetched with a bar if need be, and llama.cpp made ready."""
    from spec_cpu.llama import log
    from spec_cpu.llama.remote import check_supported
    from spec_cpu.models.fetch import resolve
    from spec_cpu_cli.progress import download_progress

    log.set_verbose(models.llama_log)
    log.on_abort(_leave)
    if models.rpc:
        check_supported()  # before anything is fetched
    target, drafts = choice.target, choice.drafts
    with download_progress(show=not models.quiet) as report:
        if isinstance(target, str):
            target = resolve(target, report)
        if isinstance(drafts.model, str):
            drafts = replace(drafts, model=resolve(drafts.model, report))
    return target, drafts


def _memory_file(memory: str | None, target: Path) -> Path | None:
    if memory == "":
        raise UsageError("--memory is empty: give it on, off, or the name of a file")
    from spec_cpu.draft.memory import memory_file
    from spec_cpu.llama.model import Model

    if memory is None or memory == MEMORY_OFF:
        return None
    if memory == MEMORY_ON:
        if not target.is_file():
            return None  # loading says so
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
