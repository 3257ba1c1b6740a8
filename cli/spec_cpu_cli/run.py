"""`spec-cpu run`: one prompt, one answer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spec_cpu.arguments import check_stops
from spec_cpu.errors import RemoteError, UsageError
from spec_cpu_cli import options as opt
from spec_cpu_cli.command import OUTPUT
from spec_cpu_cli.keeping import KeepOptions, record, settings_of
from spec_cpu_cli.signature import with_options
from spec_cpu_cli.terminal import print_aside


@with_options
def run(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="What to answer; what is piped in goes before it.",
            show_default="--prompt, --file or standard input",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            "-p",
            metavar="TEXT",
            help="What to answer, as an option.",
            show_default="the argument",
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            callback=opt.home,
            metavar="FILE",
            help="A file as the prompt, or after it; `-` is standard input. May be repeated.",
            show_default="none",
        ),
    ] = None,
    escape: Annotated[
        bool,
        typer.Option(
            "--escape", "-e", help=r"Read \n, \t and the like in the prompt as llama.cpp does."
        ),
    ] = False,
    prompt_cache: Annotated[
        Path | None,
        typer.Option(
            "--prompt-cache",
            callback=opt.home,
            metavar="FILE",
            help="Keep the prompt as it was read: what begins alike need not be read again.",
            show_default="none",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Continue the text as it is, without a chat template.",
            rich_help_panel=opt.SELDOM,
        ),
    ] = False,
    no_special: Annotated[
        bool,
        typer.Option(
            "--no-special",
            help="With --raw: what looks like a control token is plain text.",
            rich_help_panel=opt.SELDOM,
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Show all that was measured, and what it means.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object at the end.", rich_help_panel=OUTPUT),
    ] = False,
    *,
    answer: opt.AnswerOptions,
    models: opt.ModelOptions,
    drafting: opt.DraftOptions,
    sampling: opt.SamplingOptions,
    keeping: KeepOptions,
) -> None:
    """Answer one prompt, faster, by guessing ahead with a small model.

    The answer is the one that the model alone would give. Without a --target a small model answers,
    which is there to try it out. Options can be kept in a file: see spec-cpu config.
    """
    from spec_cpu_cli import report
    from spec_cpu_cli.answer import print_details, print_summary, say, stream_answer
    from spec_cpu_cli.prompt import chosen_prompt, read_prompt
    from spec_cpu_cli.startup import EXIT_CODE

    if raw and answer.system:
        raise UsageError("--system needs the chat template: leave out --raw")
    if no_special and not raw:
        raise UsageError("--no-special is for --raw: in a conversation nobody's text is special")
    if raw and (keeping.log or keeping.go_on):
        raise UsageError("--raw is no conversation, which could be kept or go on: leave it out")
    stops, quiet = check_stops(answer.stop), models.quiet
    params = sampling.params
    question = read_prompt(chosen_prompt(prompt, text, escape=escape), file or [], quiet=quiet)
    kept = keeping.begin()
    models = kept.with_models(models) if kept else models
    choice = models.choice
    session = opt.open_session(
        choice,
        models,
        drafting,
        params,
        seed=sampling.seed,
        system=answer.system,
        memory=answer.memory,
        prompt_cache=prompt_cache,
    )
    generate = partial(
        session.generate,
        question,
        max_tokens=answer.max_tokens,
        raw=raw,
        special=not no_special,
        stop=stops,
        ignore_eos=answer.ignore_eos,
    )

    def keep() -> None:
        if kept:
            settings = settings_of(answer, sampling)
            kept.keep(record(session, choice, settings, session.finish, kept.earlier))

    with session:
        if kept:
            kept.resume(session, answer.system)
        said = 0 if quiet else say(session)
        try:
            written = stream_answer(
                session,
                lambda progress: generate(progress=progress),
                stream=not as_json,
                quiet=quiet,
                color=answer.color,
            )
        except RemoteError:
            if session.stats.tokens:  # what was said so far
                keep()
            raise
        if as_json:
            print(json.dumps(report.as_json(session, written), ensure_ascii=False))
        elif not quiet:
            say(session, said)
            _say_where_it_was_cut(session.finish, session.n_ctx)
            print_summary(report.summary(session.stats, session.why_plain, exact=session.exact))
            if verbose:
                print_details(report.details(session.stats, session.shape, session.target.servers))
        if written:
            keep()
        said = len(session.notices)
        session.close()
        if not quiet:
            say(session, said)  # of the memory, which was written now
        if session.finish == "interrupted":
            raise typer.Exit(EXIT_CODE)


def _say_where_it_was_cut(finish: str, n_ctx: int) -> None:
    if finish == "length":
        print_aside("note: cut at --max-tokens")
    elif finish == "context":
        print_aside(f"note: cut where the context of {n_ctx:,} tokens was full")
