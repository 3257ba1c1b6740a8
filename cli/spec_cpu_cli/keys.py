"""The terminal's keys while text streams: none of them, and no ^C, gets into the text."""

from __future__ import annotations

import os
import sys
import termios

_LOCAL = 3  # of what `tcgetattr` returns: the local modes
# Ctrl-C would otherwise also throw away what was written and not shown yet.
_OFF, _ON = termios.ECHO, termios.NOFLSH

_before: tuple[int, int] | None = None  # a terminal, and its local modes


def echo_off() -> None:
    """Do not echo keys, if this process is in the foreground of its terminal."""
    global _before  # noqa: PLW0603 (a process has one terminal that keys come from)
    terminal = _terminal()
    if terminal is not None:
        local = termios.tcgetattr(terminal)[_LOCAL]
        _before = terminal, local
        _set(terminal, local & ~_OFF | _ON)


def echo_on() -> None:
    """Handle keys as before `echo_off`."""
    global _before  # noqa: PLW0603
    if _before is not None and _terminal() is not None:
        terminal, before = _before
        local, both = termios.tcgetattr(terminal)[_LOCAL], _OFF | _ON
        _set(terminal, local & ~both | before & both)
    _before = None


def _set(terminal: int, local: int) -> None:
    modes = termios.tcgetattr(terminal)
    modes[_LOCAL] = local
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _terminal() -> int | None:
    """A descriptor of the terminal that keys come from; None in the background.

    To change the modes of a terminal from the background would stop the process.
    """
    for stream in (sys.stdin, sys.stderr, sys.stdout):
        try:
            descriptor = stream.fileno()
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                return descriptor
        except (AttributeError, OSError, ValueError):  # closed, no terminal, another one's
            continue
    return None
