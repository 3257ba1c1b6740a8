"""`spec-cpu run`: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spec_cpu import defaults
from spec_cpu.arguments import check_stops
from spec_cpu.choice import choose_models
from spec_cpu.errors import UsageError
from spec_cpu_cli import options as opt


def run(
    prompt: Annotated[
        str | None, typer.Argument(help="What to answer.", show_default=False)
    ] = None,
    target: opt.Target = None,
    draft: opt.Draft = None,
    pair: opt.Pair = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", callback=opt.home, help="Text after the prompt; `-` is standard input."
        ),
    ] = None,
    system: opt.System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is: no chat template.")
    ] = False,
    no_special: Annotated[
        bool,
        typer.Option("--no-special", help="With --raw: names of control tokens are plain text."),
    ] = False,
    max_tokens: opt.MaxTokens = defaults.MAX_TOKENS,
    stop: opt.Stop = None,
    ignore_eos: opt.IgnoreEos = False,
    ctx: opt.Context = None,
    draft_ctx: opt.DraftContext = None,
    threads: opt.Threads = None,
    kernels: opt.Kernels = defaults.KERNELS,
    draft_tokens: opt.DraftTokens = None,
    shape: opt.Shape = defaults.SHAPE,
    lookup: opt.Lookup = None,
    rule: opt.Rule = defaults.RULE,
    recalibrate: opt.Recalibrate = False,
    temp: opt.Temperature = defaults.TEMPERATURE,
    top_k: opt.TopK = defaults.TOP_K,
    top_p: opt.TopP = defaults.TOP_P,
    min_p: opt.MinP = defaults.MIN_P,
    repeat_penalty: opt.RepeatPenalty = defaults.REPEAT_PENALTY,
    frequency_penalty: opt.FrequencyPenalty = defaults.FREQUENCY_PENALTY,
    presence_penalty: opt.PresencePenalty = defaults.PRESENCE_PENALTY,
    repeat_last_n: opt.RepeatLastN = defaults.PENALTY_LAST_N,
    logit_bias: opt.LogitBias = None,
    seed: opt.Seed = None,
    color: opt.Color = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object at the end.", rich_help_panel="Output"),
    ] = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Answer one prompt, with a draft model proposing and the target deciding every token.

    The prompt is the argument, a --file, or standard input. Without --target it is the default
    pair, which needs no model hub.
    """
    from spec_cpu_cli import report
    from spec_cpu_cli.answer import print_summary, say, stream_answer
    from spec_cpu_cli.interrupt import EXIT_CODE
    from spec_cpu_cli.prompt import read_prompt

    if raw and system:
        raise UsageError("--system needs the chat template: leave out --raw")
    if no_special and not raw:
        raise UsageError("--no-special is for --raw: in a conversation nobody's text is special")
    stops = check_stops(stop)
    choice = choose_models(target, draft, pair)
    sampling = opt.sampling_params(
        temp=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        repeat_last_n=repeat_last_n,
        logit_bias=logit_bias,
    )
    text = read_prompt(prompt, file or [])
    session = opt.open_session(
        choice,
        ctx=ctx,
        draft_ctx=draft_ctx,
        threads=threads,
        kernels=kernels,
        k=draft_tokens,
        shape=shape,
        rule=rule,
        sampling=sampling,
        seed=seed,
        system=system,
        lookup=lookup,
        recalibrate=recalibrate,
        verbose=verbose,
        progress=not quiet,
    )
    generate = partial(
        session.generate,
        text,
        max_tokens=max_tokens,
        raw=raw,
        special=not no_special,
        stop=stops,
        ignore_eos=ignore_eos,
    )
    with session:
        said = 0 if quiet else say(session)
        answer = stream_answer(
            session,
            lambda progress: generate(progress=progress),
            stream=not as_json,
            quiet=quiet,
            color=color,
        )
        if as_json:
            print(json.dumps(report.as_json(session, answer), ensure_ascii=False))
        elif not quiet:
            say(session, said)
            _say_where_it_was_cut(session.finish, session.n_ctx)
            lines = report.summary(
                session.stats, session.why_plain, session.shape, exact=session.exact
            )
            print_summary(lines)
        if session.finish == "interrupted":
            raise typer.Exit(EXIT_CODE)


def _say_where_it_was_cut(finish: str, n_ctx: int) -> None:
    if finish == "length":
        print("note: cut at --max-tokens", file=sys.stderr)
    elif finish == "context":
        print(f"note: cut where the context of {n_ctx:,} tokens was full", file=sys.stderr)
