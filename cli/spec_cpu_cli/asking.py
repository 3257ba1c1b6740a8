"""Asking a person before something is removed that cannot come again."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from spec_cpu.errors import UsageError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
_DECLINED = 1  # the exit code


def confirm(question: str) -> None:
    """Go on only if a person says so."""
    if not _can_be_asked():
        raise UsageError("nobody can be asked here whether to remove it: give --yes")
    if not typer.confirm(question, err=True):
        print("nothing was removed")
        raise typer.Exit(_DECLINED)


def _can_be_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
