"""The `spec-cpu` program: its commands, and how errors leave it."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Annotated

import typer

from spec_cpu import __version__
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu_cli import (
    bench,
    cache,
    chat,
    config,
    demo,
    kernels,
    logs,
    memory,
    models,
    plan,
    run,
    serve,
    train,
)
from spec_cpu_cli.command import Command, Group
from spec_cpu_cli.flags import with_flags
from spec_cpu_cli.mistakes import in_words
from spec_cpu_cli.options import help_alone
from spec_cpu_cli.prompt import is_text
from spec_cpu_cli.startup import EXIT_CODE
from spec_cpu_cli.terminal import forget_stale_size, print_aside

# Typer carries a click of its own: what its errors have in common is found through what it exports.
_ClickError = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_COMPLETE = "_SPEC_CPU_COMPLETE"  # in the environment: complete a command line, as the shell says

app = typer.Typer(
    name="spec-cpu",
    help="The same answers as your GGUF model, faster, on a CPU.",
    epilog="A draft is what guesses ahead: a small model, a head (a tiny network that was trained "
    "for your model), or the text itself. Kernels are code compiled for this processor. More "
    "words: docs/words.md",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)
app.command()(run.run)
app.command()(chat.chat)
app.command()(serve.serve)
app.command()(demo.demo)
app.command()(plan.plan)
app.command()(bench.bench)
app.command()(train.train)
app.add_typer(models.app, name="models")
app.add_typer(kernels.app, name="kernels")
app.add_typer(memory.app, name="memory")
app.add_typer(logs.app, name="logs")
app.add_typer(cache.app, name="cache")
app.add_typer(config.app, name="config")
for group in (app, *(one.typer_instance for one in app.registered_groups)):
    if group:
        group.info.cls = Group
        for command in group.registered_commands:
            command.cls = Command


def _version(show: bool) -> None:
    if show:
        print(f"spec-cpu {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The same answers as your GGUF model, faster, on a CPU."""
    help_alone(context)


def run_program() -> int:
    """Run the command that `sys.argv` names; its exit code. A foreseen error is one line."""
    try:
        _mend_streams()
        forget_stale_size()
        _check_arguments()
        try:
            code = app(standalone_mode=False, prog_name="spec-cpu")
        finally:
            sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_CODE
    except SystemExit as end:
        if _COMPLETE in os.environ:  # a shell asks, and goes by the exit code
            return end.code if isinstance(end.code, int) else 0
        _abandon_output()
        return 0  # whoever read our output has enough: click makes this of a broken pipe
    except BrokenPipeError:
        _abandon_output()
        return 0
    except Exception as error:
        message, code = _explain(error)
        print_aside(f"spec-cpu: {message}")
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[str, int]:
    """The line and the exit code for a foreseen error; any other is raised again: a bug."""
    if isinstance(error, SpecCpuError):
        return with_flags(str(error)), error.exit_code
    if isinstance(error, _ClickError):
        return in_words(error), getattr(error, "exit_code", UsageError.exit_code)
    if isinstance(error, OSError):
        _abandon_output()
        return f"cannot write the output: {error.strerror}", SpecCpuError.exit_code
    if isinstance(error, MemoryError):
        return "not enough memory: try a smaller model or --ctx", SpecCpuError.exit_code
    raise error


def _abandon_output() -> None:
    # The interpreter flushes once more at its end: what cannot be written must not be tried again.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _mend_streams() -> None:
    """Make standard streams that cannot fail on a character, whatever the shell left of them."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)
    if sys.stdout is None:
        sys.stdout = _Closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")


def _check_arguments() -> None:
    # Bytes of the command line that are not UTF-8 arrive as lone surrogates.
    for argument in sys.argv[1:]:
        if not is_text(argument):
            raise UsageError(f"{argument!a} is not UTF-8 text: check the terminal's encoding")


class _Closed(io.StringIO):
    """Standard output that was closed: the first thing written to it is an error."""

    def write(self, _text: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed")
