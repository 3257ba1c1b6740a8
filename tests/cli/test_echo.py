"""Keys are not echoed from an answer on to the next prompt; whatever ends that has them echoed."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios

import pytest

_PROGRAM = """
import os, signal, sys, termios
from spec_cpu_cli.interrupt import Interrupt, speak
def echoes():
    return bool(termios.tcgetattr(0)[3] & termios.ECHO)
assert echoes()
for _ in range(2):
    with Interrupt(silent_after=True):
        assert not echoes()
    assert not echoes()
speak()
assert echoes()
with Interrupt():
    assert not echoes()
assert echoes()
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
with Interrupt(silent_after=True):
    pass
os.kill(os.getpid(), int(sys.argv[1]))
"""


def _left_by(number: int) -> tuple[int, bool]:
    """The exit code of a process that gets a signal before the prompt; and is ECHO on then?"""
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-c", _PROGRAM, str(number)])
    try:
        _, status = os.waitpid(pid, 0)
        echoes = bool(termios.tcgetattr(terminal)[3] & termios.ECHO)
        return os.waitstatus_to_exitcode(status), echoes
    finally:
        os.close(terminal)


@pytest.mark.parametrize(
    ("number", "left"),
    [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGTSTP, 0)],
    ids=["SIGTERM", "SIGHUP", "SIGTSTP"],
)
def test_no_signal_leaves_a_terminal_without_echo(
    number: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could continue this process: Linux lets it go on instead of stopping it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    assert _left_by(number) == (left, True)
