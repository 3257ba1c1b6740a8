"""`spec-cpu chat`: a conversation at the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spec_cpu import defaults
from spec_cpu.arguments import check_stops, expanded
from spec_cpu.choice import choose_models
from spec_cpu.errors import SpecCpuError
from spec_cpu_cli import options as opt
from spec_cpu_cli.flags import with_flags
from spec_cpu_cli.prompt import is_text

if TYPE_CHECKING:
    from spec_cpu.session import Session
    from spec_cpu_cli.answer import Generate

_HELP = "/reset begins anew, /stats shows speed and alpha, /save FILE keeps the text, /exit leaves"


def chat(
    target: opt.Target = None,
    draft: opt.Draft = None,
    pair: opt.Pair = None,
    system: opt.System = None,
    max_tokens: opt.MaxTokens = defaults.MAX_TOKENS,
    stop: opt.Stop = None,
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
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Talk with a model, turn by turn; what was read stays in the cache.

    /reset begins anew, /stats shows speed and alpha, /save FILE keeps the text, /exit leaves.
    Ctrl-C stops an answer, Ctrl-D leaves.
    """
    from spec_cpu_cli.answer import say

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
    with session:
        said = 0 if quiet else say(session)
        _note(_HELP, quiet)
        while (line := _ask(quiet)) is not None:
            if line.startswith("/"):
                if not _command(session, line):
                    break
            elif not is_text(line):
                _note("that line is not UTF-8 text: type it again", quiet=False)
            elif line:
                _reply(session, line, max_tokens, stops, quiet=quiet, color=color)
                said = said if quiet else say(session, said)


def _ask(quiet: bool) -> str | None:
    """The next line a person types; None at the end of input."""
    try:
        if sys.stdin is None:
            return None
        if not sys.stdin.isatty():
            line = sys.stdin.readline()
            return line.strip() if line else None
        import readline  # noqa: F401 (line editing and history for input())

        return input("" if quiet else "\n> ").strip()
    except KeyboardInterrupt:
        _note("\n/exit or Ctrl-D leaves", quiet)
        return ""
    except EOFError:
        _note("", quiet)
        return None


def _reply(
    session: Session, text: str, max_tokens: int, stop: list[str], *, quiet: bool, color: bool
) -> None:
    from spec_cpu_cli.answer import stream_answer

    generate: Generate = lambda progress: session.generate(  # noqa: E731
        text, max_tokens=max_tokens, stop=stop, progress=progress
    )
    try:
        stream_answer(session, generate, stream=True, quiet=quiet, color=color)
    except SpecCpuError as error:
        _note(f"spec-cpu: {with_flags(str(error))}", quiet=False)
    else:
        if session.finish == "context":
            _note("the context is full: /reset begins anew, or raise --ctx", quiet)


def _command(session: Session, line: str) -> bool:
    """Carry out a line that begins with `/`; False if it ends the conversation."""
    name, _, argument = line.partition(" ")
    if name in ("/exit", "/quit"):
        return False
    if name == "/reset":
        session.reset()
        _note("a new conversation", quiet=False)
    elif name == "/stats":
        _show_stats(session)
    elif name == "/save":
        _save(session, argument.strip())
    else:
        _note(f"no command {name}: {_HELP}", quiet=False)
    return True


def _show_stats(session: Session) -> None:
    from spec_cpu_cli.answer import print_summary
    from spec_cpu_cli.report import summary

    if session.total.cycles:
        print_summary(summary(session.total, session.why_plain, session.shape, exact=session.exact))
    else:
        _note("nothing was answered yet", quiet=False)


def _save(session: Session, name: str) -> None:
    if not name:
        _note("/save needs a file name", quiet=False)
        return
    turns = [f"## {turn['role']}\n\n{turn['content'].strip()}\n" for turn in session.messages]
    try:
        expanded(Path(name)).write_text("\n".join(turns), encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:
        _note(f"cannot write {name!a}: {getattr(error, 'strerror', error)}", quiet=False)
    else:
        _note(f"saved {len(turns)} turns to {name}", quiet=False)


def _note(text: str, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr)
