"""Where a prompt comes from: the command line, files, standard input."""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from spec_cpu.errors import UsageError

_STDIN = "-"


def read_prompt(argument: str | None, files: Sequence[Path]) -> str:
    """The prompt: the argument, then each file, with an empty line between.

    Without either it is standard input, if that is piped.

    Raises:
        UsageError: nothing given, a file cannot be read, or something is not UTF-8.
    """
    parts = [] if argument is None else [argument]
    parts += [_read(file) for file in files]
    if not parts:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("no prompt: give it as an argument, with --file, or piped in")
        parts = [_read(Path(_STDIN))]
    prompt = "\n\n".join(parts)
    if not prompt.strip():
        raise UsageError("the prompt is empty: give some text, --file, or standard input")
    return prompt


def is_text(text: str) -> bool:
    """Is it text, without lone surrogates that stand for bytes of another encoding?"""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _read(file: Path) -> str:
    name = "standard input" if str(file) == _STDIN else str(file)
    try:
        data = _stdin() if str(file) == _STDIN else _contents(file)
    except IsADirectoryError:
        raise UsageError(f"{name} is a directory: give a text file") from None
    except FileNotFoundError:
        raise UsageError(f"no such file: {name}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {name}: {getattr(error, 'strerror', error)}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {data[error.start]:#04x} at offset {error.start}): "
            "convert it first, for example with iconv"
        ) from None


def _stdin() -> bytes:
    if sys.stdin is None:
        raise UsageError("no prompt: standard input is closed; give an argument or --file")
    return sys.stdin.buffer.read()


def _contents(file: Path) -> bytes:
    mode = file.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise UsageError(f"{file} is a device, which may have no end: give a text file")
    return file.read_bytes()
