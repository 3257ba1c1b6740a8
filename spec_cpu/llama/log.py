"""llama.cpp's own log: off the terminal unless asked for, its last error kept for our messages."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import llama_cpp
from llama_cpp.llama_cpp import _lib

_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_CONTINUED = 5  # GGML_LOG_LEVEL_CONT: goes on with the line before it

_errors: list[str] = []
_verbose = False
_last_level = 0


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _receive(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    global _last_level  # noqa: PLW0603 (llama.cpp has one log for the whole process)
    line = text.decode("utf-8", "replace")
    if _verbose:
        sys.stderr.write(line)
    _last_level = _last_level if level == _CONTINUED else level
    if _last_level == _ERROR and line.strip():
        _errors.append(line.strip())


def set_verbose(verbose: bool) -> None:
    """Print llama.cpp's log to standard error from now on, or stop doing so."""
    global _verbose  # noqa: PLW0603
    _verbose = verbose


def forget_errors() -> None:
    """Start a new span: `last_error` speaks only of what comes after this call."""
    _errors.clear()


def last_error() -> str:
    """What llama.cpp said went wrong since `forget_errors`; empty if nothing did.

    llama.cpp logs the cause first, then a line for each caller. This is the first line and the last
    one, without the names of functions.
    """
    if not _errors:
        return ""
    first, last = (_without_function(line) for line in (_errors[0], _errors[-1]))
    return first if first == last else f"{first}; {last}"


def _without_function(line: str) -> str:
    _, found, message = line.partition(": ")
    return message.strip() if found else line


_abort_callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_aborted: object = None  # keeps the callback alive: C holds only its address


def on_abort(handle: Callable[[str], None]) -> None:
    """Call `handle` with the reason when llama.cpp is about to abort the process.

    llama.cpp trusts a few things in a file and asserts them. If `handle` returns, the process dies.
    """
    global _aborted  # noqa: PLW0603

    def receive(message: bytes) -> None:
        handle(message.decode("utf-8", "replace").strip())

    _aborted = _abort_callback(receive)
    _lib.ggml_set_abort_callback(_aborted)


llama_cpp.llama_log_set(_receive, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
