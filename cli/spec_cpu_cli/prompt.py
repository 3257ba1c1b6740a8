"""Where a prompt comes from: the command line, files, standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from spec_cpu.arguments import check_prompt
from spec_cpu.errors import UsageError
from spec_cpu.text.files import decode, read_bytes

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
    check_prompt(prompt, "give some text, --file, or standard input")
    return prompt


def is_text(text: str) -> bool:
    """Is it text, without lone surrogates that stand for bytes of another encoding?"""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _read(file: Path) -> str:
    if str(file) == _STDIN:
        return decode(_stdin(), "standard input")
    return decode(read_bytes(file), file)


def _stdin() -> bytes:
    if sys.stdin is None:
        raise UsageError("no prompt: standard input is closed; give an argument or --file")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror}") from None
