"""The `spec-cpu` program: its commands, and how errors leave it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer

from spec_cpu import __version__
from spec_cpu.errors import SpecCpuError
from spec_cpu_cli import chat, models, run
from spec_cpu_cli.interrupt import EXIT_CODE

app = typer.Typer(
    name="spec-cpu",
    help="Exact speculative decoding for GGUF models on a CPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run.run)
app.command()(chat.chat)
app.add_typer(models.app, name="models")


def _version(show: bool) -> None:
    if show:
        print(f"spec-cpu {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Exact speculative decoding for GGUF models on a CPU."""


def main() -> None:
    """Run the program; every foreseen error is one line on standard error and an exit code."""
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except SpecCpuError as error:
        return _fail(str(error), error.exit_code)
    except click.ClickException as error:
        return _fail(_with_hint(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_CODE
    except BrokenPipeError:
        # Whoever read our output has enough; keep the interpreter from flushing into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"spec-cpu: {message}", file=sys.stderr)
    return code


def _with_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "spec-cpu"
    return f"{error.format_message().rstrip('.')} (see {command} --help)"
