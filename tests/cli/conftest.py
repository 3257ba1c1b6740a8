"""The installed program as a child process: on pipes, on sockets, on a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import select
import struct
import subprocess
import sys
import sysconfig
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import tiny
from asking import ASKED, PATIENCE
from spec_cpu_cli.main import main

PROGRAM = Path(sysconfig.get_path("scripts")) / "spec-cpu"
ROWS, COLUMNS = 24, 80

# Run in the child before the program: the terminal becomes the one that Ctrl-C comes from.
_CONTROL = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


@dataclass(frozen=True, slots=True)
class Models:
    """Two relatives that know printable ASCII and write a character a token."""

    target: Path
    draft: Path

    @property
    def alone(self) -> list[str]:
        silent = ["--logit-bias", "0=-inf", "--logit-bias", "1=-inf"]  # <unk> and <s> have no text
        return ["-m", str(self.target), "-t", "1", *silent]

    @property
    def plain(self) -> list[str]:
        return [*self.alone, "-d", "none"]

    @property
    def pair(self) -> list[str]:
        return [*self.alone, "-d", str(self.draft), "-k", "4"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished child left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class Program:
    """Starts the program with an environment that says nothing of terminals and colours."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home = home
        self._stack = stack

    @property
    def env(self) -> dict[str, str]:
        """Of the test that is run now."""
        unset = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "COLUMNS", "LINES")
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        config = str(self.home / "config")
        return {**kept, "TERM": "xterm-256color", "XDG_CONFIG_HOME": config, "INPUTRC": os.devnull}

    def __call__(self, *args: str | Path, stdin: str | bytes = b"") -> Result:
        """Run it to its end on pipes."""
        done = subprocess.run(
            [PROGRAM, *args],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=PATIENCE,
            env=self.env,
            cwd=self.home,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr.decode())

    def answer(self, *args: str | Path, stdin: str | bytes = b"") -> dict[str, Any]:
        """The object that `run --json` prints; within this process, which is much quicker."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.object(sys, "argv", ["spec-cpu", "run", "--json", *map(str, args)]),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main()
        assert end.value.code == 0, err.getvalue()
        return Result(0, out.getvalue().encode(), err.getvalue()).json

    def start(
        self,
        *args: str | Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        terminal: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start it and leave it running; it ends with the test.

        `terminal` is a descriptor that the child inherits, of what becomes its terminal.
        """
        control = [] if terminal is None else [sys.executable, "-c", _CONTROL, str(terminal)]
        child = self._stack.enter_context(
            subprocess.Popen(
                [*control, PROGRAM, *args],
                bufsize=0,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=self.env,
                cwd=self.home,
                start_new_session=terminal is not None,
                pass_fds=() if terminal is None else (terminal,),
            )
        )
        self._stack.callback(child.kill)
        return child

    def on_terminal(self, *args: str | Path, on: str = "ioe") -> Terminal:
        """Start it with the streams in `on` (stdin, stdout, stderr) on a terminal."""
        return self._stack.enter_context(Terminal(self, args, on))


class Terminal:
    """A child with some of its streams on a terminal, and the others on pipes.

    Attributes:
        shown: every byte that the terminal was sent.
    """

    def __init__(self, program: Program, args: tuple[str | Path, ...], on: str) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        self.shown = b""
        try:
            self.child = program.start(
                *args,
                stdin=slave if "i" in on else subprocess.DEVNULL,
                stdout=slave if "o" in on else subprocess.PIPE,
                stderr=slave if "e" in on else subprocess.PIPE,
                terminal=slave,
            )
        finally:
            os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._master)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def press(self, key: str, pattern: str, *, after: int) -> int:
        """Press `key`, and again where it was overlooked, until `pattern` is shown; its end."""
        while not (found := re.compile(pattern.encode()).search(self.shown, after)):
            assert self.child.poll() is None, self.shown[after:]
            self.type(key)
            self._read(0.5)
        return found.end()

    def wait_for(self, pattern: str, *, after: int = 0) -> int:
        """Read until `pattern` (a regular expression) is shown; where its match ends."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if found := re.compile(pattern.encode()).search(self.shown, after):
                return found.end()
            if not self._read(0.2) and self.child.poll() is not None:
                break
        pytest.fail(f"{pattern!r} did not appear after {after}: {self.shown[after:][-2000:]!r}")

    def wait_for_stop(self) -> None:
        """Read until the child is stopped, as by Ctrl-Z."""
        until = time.monotonic() + PATIENCE
        while not os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WNOHANG):
            assert time.monotonic() < until, f"goes on: {self.shown[-2000:]!r}"
            self._read(0.05)

    @property
    def local_modes(self) -> int:
        """Of the terminal: whether keys are echoed, among others."""
        modes = termios.tcgetattr(self._master)[3]
        assert isinstance(modes, int)
        return modes

    def finish(self) -> Result:
        """Wait for the child's end; what it wrote to pipes."""
        until = time.monotonic() + PATIENCE
        while self._read(0.05) or self.child.poll() is None:
            assert time.monotonic() < until, f"stuck: {self.shown[-2000:]!r}"
        out, err = self.child.communicate()
        return Result(self.child.returncode, out or b"", (err or b"").decode())

    def _read(self, seconds: float) -> bytes:
        if not select.select([self._master], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the child has closed its end
            return b""
        self.shown += data
        return data


class Screen:
    """What a DEC terminal such as xterm shows: lines that scrolled away are kept in `lines`.

    In the last column the cursor stays on the character just written, and only the next one
    wraps; any movement forgets that. Sequences that are not known fail.
    """

    _TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b([D78])|(\r)|(\n)|([^\x00-\x1f\x7f])")

    def __init__(self, data: bytes) -> None:
        self._cells: list[list[str]] = [[] for _ in range(ROWS)]
        self._row = self._column = self._top = 0
        self._wrap = False
        self._saved = (0, 0)
        text, at = data.decode(), 0
        while at < len(text):
            token = self._TOKEN.match(text, at)
            assert token, f"unknown to this terminal: {text[at : at + 8]!r}"
            argument, control, escape, back, down, character = token.groups()
            if character:
                self._put(character)
            elif control:
                self._control(control, argument)
            else:
                self._move(escape or back or down)
            at = token.end()

    @property
    def lines(self) -> list[str]:
        return ["".join(cells).rstrip() for cells in self._cells]

    def _put(self, character: str) -> None:
        if self._wrap:
            self._line_feed()
            self._column = 0
        cells = self._cells[self._row]
        cells += [" "] * (self._column + 1 - len(cells))
        cells[self._column] = character
        self._wrap = self._column == COLUMNS - 1
        self._column = min(self._column + 1, COLUMNS - 1)

    def _line_feed(self) -> None:
        self._wrap = False
        self._row += 1
        if self._row == self._top + ROWS:
            self._top += 1
            self._cells.append([])

    def _go(self, row: int, column: int) -> None:
        self._row = min(max(row, self._top), self._top + ROWS - 1)
        self._column, self._wrap = column, False

    def _move(self, what: str) -> None:
        match what:
            case "\r":
                self._go(self._row, 0)
            case "\n" | "D":
                self._line_feed()
            case "7":
                self._saved = (self._row - self._top, self._column)
            case "8":
                self._go(self._top + self._saved[0], self._saved[1])
            case other:
                pytest.fail(f"unknown to this terminal: escape {other!r}")

    def _control(self, what: str, argument: str) -> None:
        match what:
            case "A":
                self._go(self._row - int(argument or 1), self._column)
            case "B":
                self._go(self._row + int(argument or 1), self._column)
            case "J" if argument in ("", "0"):
                del self._cells[self._row][self._column :]
                for cells in self._cells[self._row + 1 :]:
                    cells.clear()
                self._wrap = False
            case "K" if argument in ("", "0"):
                del self._cells[self._row][self._column :]
            case "K" if argument == "2":
                self._cells[self._row].clear()
            case "m" | "h" | "l":
                pass
            case other:
                pytest.fail(f"unknown to this terminal: CSI {argument}{other}")


@pytest.fixture(scope="session")
def readable(models: Path) -> Models:
    """A pair whose answers are printable ASCII and newlines, a character a token."""
    tokens = [*tiny.vocabulary(98), "\n"]
    made = [
        tiny.write_llama(
            models / f"readable-{name}.gguf",
            tokens=tokens,
            n_ctx=1 << 16,
            scale=3,
            noise=noise,
            chat_template=tiny.CHATML,
        )
        for name, noise in (("target", 0.0), ("draft", 0.15))
    ]
    return Models(*made)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which measured costs stay from one test to the next."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program, for runs that end by themselves: they may be shared between tests."""
    with ExitStack() as stack:
        yield Program(tmp_path_factory.mktemp("cli"), stack)


@pytest.fixture(scope="session")
def drafted(cli: Program, readable: Models) -> dict[str, Any]:
    """A run with a draft, as `--json` has it."""
    return cli.answer(*readable.pair, *ASKED)


@pytest.fixture(scope="session")
def plain(cli: Program, readable: Models) -> dict[str, Any]:
    """A run with a target alone, as `--json` has it."""
    return cli.answer(*readable.plain, *ASKED)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """The program in a folder of its own; whatever still runs is killed after the test."""
    with ExitStack() as stack:
        yield Program(tmp_path, stack)


@pytest.fixture
def screen() -> Callable[[bytes], list[str]]:
    """The lines that a terminal of 80 columns shows in the end."""
    return lambda data: Screen(data).lines
