"""Removing what is kept: a person is asked first, and told in one line why it cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu_cli.terminal import for_terminal

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
_DECLINED = 1  # the exit code


def confirm(question: str) -> None:
    """Go on only if a person says so."""
    if not _can_be_asked():
        raise UsageError("nobody can be asked here whether to remove it: give --yes")
    # Broken by us: a terminal would break it within a word.
    asked = for_terminal(f"{question} [y/N]:", sys.stderr)
    if not typer.confirm(asked, err=True, show_default=False, prompt_suffix=" "):
        print("nothing was removed")
        raise typer.Exit(_DECLINED)


def _can_be_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def removing(path: Path, doing: str) -> Iterator[None]:
    """Turn what prevents the removal of `path` into one line.

    Args:
        doing: what another process that holds its lock does with it.

    Raises:
        SpecCpuError: it cannot be removed.
    """
    try:
        yield
    except TimeoutError:
        raise SpecCpuError(f"another process is {doing} {path}: try again") from None
    except OSError as error:
        raise SpecCpuError(f"cannot remove {path}: {error.strerror}") from None
