"""Where a prompt comes from: the command line, files, standard input."""

from __future__ import annotations

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
    parts = [] if argument is None else [_checked(argument)]
    parts += [_read(file) for file in files]
    if not parts:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("no prompt: give it as an argument, with --file, or piped in")
        parts = [_read(Path(_STDIN))]
    prompt = "\n\n".join(parts)
    if not prompt.strip():
        raise UsageError("the prompt is empty: give some text, --file, or standard input")
    return prompt


def _checked(argument: str) -> str:
    # Bytes of the command line that are not UTF-8 arrive as lone surrogates.
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the prompt is not UTF-8 text: check the terminal's encoding") from None
    return argument


def _read(file: Path) -> str:
    name = "standard input" if str(file) == _STDIN else str(file)
    try:
        data = sys.stdin.buffer.read() if str(file) == _STDIN else file.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{name} is a directory: give a text file") from None
    except FileNotFoundError:
        raise UsageError(f"no such file: {name}") from None
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {data[error.start]:#04x} at offset {error.start}): "
            "convert it first, for example with iconv"
        ) from None
