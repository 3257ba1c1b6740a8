"""Where a prompt comes from: the command line, files, standard input."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from spec_cpu.arguments import check_prompt
from spec_cpu.errors import UsageError
from spec_cpu.text.files import decode, read_bytes
from spec_cpu_cli.terminal import print_aside

_STDIN = "-"
_PATIENCE = 2.0  # seconds until a pipe from which nothing comes is worth a word
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def chosen_prompt(argument: str | None, option: str | None, *, escape: bool) -> str | None:
    """The prompt of the command line, given as an argument or by --prompt; None: not given.

    Args:
        escape: read escapes in it, those that llama.cpp knows; others stay as they are.

    Raises:
        UsageError: it was given both ways, or its escapes spell no UTF-8.
    """
    if argument is not None and option is not None:
        raise UsageError("there are two prompts: give it as an argument or with --prompt, not both")
    prompt = option if argument is None else argument
    return unescaped(prompt) if escape and prompt is not None else prompt


def unescaped(text: str) -> str:
    """`text` with what its escapes stand for; `\\xHH` is a byte of UTF-8.

    Raises:
        UsageError: the bytes are not UTF-8.
    """

    def stands_for(found: re.Match[str]) -> str:
        name = found[1]
        if len(name) > 1:
            return bytes([int(name[1:], 16)]).decode("utf-8", "surrogateescape")
        return _ESCAPED.get(name, found[0])

    replaced = _ESCAPE.sub(stands_for, text)
    try:
        return replaced.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(r"the bytes that \x stands for in the prompt are not UTF-8") from None


def read_prompt(argument: str | None, files: Sequence[Path], *, quiet: bool = False) -> str:
    """The prompt: what is piped in, the argument, then each file, with an empty line between.

    Beside an argument or a file only a pipe and a redirected file count as piped in, and an empty
    one is left out; without either, standard input is the prompt, unless it is a terminal.

    Args:
        quiet: say nothing of a pipe that is left out, as nothing comes from it in time.

    Raises:
        UsageError: nothing given, a file cannot be read, or something is not UTF-8.
    """
    parts = [] if argument is None else [argument]
    parts += [_read(file) for file in files]
    if not parts:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                "no prompt: give it as an argument, with --prompt or --file, or piped in"
            )
        parts = [_read(Path(_STDIN))]
    elif not any(str(file) == _STDIN for file in files) and _is_piped() and _comes(quiet):
        piped = _read(Path(_STDIN))
        parts = [piped, *parts] if piped.strip() else parts
    prompt = "\n\n".join(parts)
    check_prompt(prompt, "give some text, --file, or standard input")
    return prompt


def _is_piped() -> bool:
    """Is standard input a pipe or a file? Anything else may be inherited, and never end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or none of the system's
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


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


def _comes(quiet: bool) -> bool:
    """Does something come from standard input, if only its end?

    A pipe may be inherited from a program that never writes to it: it must not hold anybody up.
    """
    if select.select([sys.stdin], [], [], _PATIENCE)[0]:
        return True
    if not quiet:
        print_aside("note: nothing was piped in, so it is left out; `-f -` waits for it")
    return False
