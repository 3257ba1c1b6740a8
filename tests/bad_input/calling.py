"""Calls of the program, and the rule for what it answers to bad input.

The rule: whatever is wrong, there is one clear line on standard error that says so, the exit code
is 2 (what was asked for makes no sense) or 1 (it could not be done), there is never a traceback,
and nothing that was written is lost.

Most tests call the program in this process, where an exception that leaves it fails the test, and
so does a warning. Signals, pipes, descriptors and crashes need a process of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

NOT_UTF8 = b"a\xffb"
HUGE = "99999999999999999999"
DEADLINE = 300.0  # seconds after which a process counts as hanging, on however busy a machine
PROGRAM = (sys.executable, "-c", "from spec_cpu_cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of the program ended. `out` keeps line ends as they are."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON object; NaN and Infinity are not JSON."""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        value: dict[str, Any] = json.loads(self.out, parse_constant=refuse)
        return value


Call = Callable[..., Outcome]


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """The rule: one line on standard error with these words, nothing on standard output."""
    assert "Traceback" not in outcome.err
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("spec-cpu: ")
    for word in words:
        assert word.lower() in line.lower()


def spawn(  # a process of its own
    *args: object,
    stdin: bytes = b"",
    redirect: str = "",
    env: dict[str, str] | None = None,
    memory: int | None = None,
) -> Outcome:
    """Runs the program in a process; `redirect` is shell syntax, `memory` a limit in bytes."""

    limits = "ulimit -c 0" if memory is None else f"ulimit -c 0; ulimit -v {memory >> 10}"
    process = subprocess.Popen(
        ["sh", "-c", f'{limits}; "$@" {redirect}', "sh", *PROGRAM, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | (env or {}),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the shell and what it started
        process.communicate()
        pytest.fail(f"hangs: {DEADLINE} s were not enough")
    return Outcome(process.returncode, out.decode("utf-8", "replace"), err.decode(errors="replace"))
