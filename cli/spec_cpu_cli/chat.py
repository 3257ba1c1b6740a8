"""`spec-cpu chat`: a conversation at the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spec_cpu.arguments import check_stops, expanded
from spec_cpu.errors import SpecCpuError
from spec_cpu_cli import options as opt
from spec_cpu_cli.flags import with_flags
from spec_cpu_cli.prompt import is_text
from spec_cpu_cli.signature import with_options

if TYPE_CHECKING:
    from spec_cpu.pairing import ModelChoice
    from spec_cpu.session import Session
    from spec_cpu_cli.answer import Generate

_HELP = (
    "/reset begins anew, /stats shows speed and acceptance, /save FILE keeps the text, /exit leaves"
)


@with_options
def chat(
    *,
    answer: opt.AnswerOptions,
    models: opt.ModelOptions,
    drafting: opt.DraftOptions,
    sampling: opt.SamplingOptions,
) -> None:
    """Talk with a model, faster, by guessing ahead with a small one.

    /reset begins anew, /stats shows speed and acceptance, /save FILE keeps the text, /exit leaves.
    Ctrl-C stops an answer, Ctrl-D leaves.
    """
    from spec_cpu_cli.answer import say

    choice, quiet = models.choice, models.quiet
    check_stops(answer.stop)
    session = opt.open_session(
        choice,
        models,
        drafting,
        sampling.params,
        seed=sampling.seed,
        system=answer.system,
        memory=_memory(answer.memory, choice, sampling.seed),
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
                _reply(session, line, answer, quiet=quiet)
                said = said if quiet else say(session, said)
    if not quiet:
        say(session, said)  # of the memory, which was written now


def _memory(memory: str | None, choice: ModelChoice, seed: int | None) -> str:
    """The memory that is asked for, or the default: a seed alone says what is answered."""
    if memory is not None:
        return memory
    return opt.MEMORY_ON if choice.drafts.ngram and seed is None else opt.MEMORY_OFF


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


def _reply(session: Session, text: str, asked: opt.AnswerOptions, *, quiet: bool) -> None:
    from spec_cpu_cli.answer import stream_answer

    generate: Generate = lambda progress: session.generate(  # noqa: E731
        text,
        max_tokens=asked.max_tokens,
        stop=asked.stop,
        ignore_eos=asked.ignore_eos,
        progress=progress,
    )
    try:
        stream_answer(session, generate, stream=True, quiet=quiet, color=asked.color)
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
