"""The command itself: from its options to a conversation."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from spec_cpu import defaults
from spec_cpu.arguments import check_stops
from spec_cpu.errors import SpecCpuError
from spec_cpu_cli import options as opt
from spec_cpu_cli.command import CONVERSATIONS, OUTPUT, given
from spec_cpu_cli.keeping import KeepOptions
from spec_cpu_cli.signature import with_options


@with_options
def chat(
    context: typer.Context,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="On a terminal, show answers as formatted text, a paragraph at a time.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history",
            help=f"Do not keep what is typed. Otherwise the last {defaults.HISTORY:,} messages "
            "come back with the up key, from a private file.",
            rich_help_panel=CONVERSATIONS,
        ),
    ] = False,
    *,
    answer: opt.AnswerOptions,
    models: opt.ModelOptions,
    drafting: opt.DraftOptions,
    sampling: opt.SamplingOptions,
    keeping: KeepOptions,
) -> None:
    """Talk with a model, faster, by guessing ahead with a small one.

    /help shows the commands. Alt-Enter begins a new line, Ctrl-C stops an answer, Ctrl-D leaves.
    """
    from spec_cpu_cli.chat.loop import talk
    from spec_cpu_cli.chat.state import Chat

    check_stops(answer.stop)
    kept = keeping.begin()
    models = kept.with_models(models) if kept else models
    state = Chat(
        answer=answer,
        models=models,
        drafting=drafting,
        sampling=sampling,
        markdown=markdown,
        kept=kept,
        given=given(context),
    )
    talk(state, history=not no_history)
    if state.failed and not (sys.stdin and sys.stdin.isatty()):
        raise typer.Exit(SpecCpuError.exit_code)
