"""Where what a person says comes from: a terminal, or lines from a pipe."""

from __future__ import annotations

from typing import Protocol, TextIO

from spec_cpu_cli.chat.parsing import is_open
from spec_cpu_cli.interrupt import speak


class Reader(Protocol):
    """Gives what a person typed."""

    def read(self, beginning: str = "") -> str | None:
        """What is typed next; empty for nothing, None at the end.

        Args:
            beginning: stands there already, to be changed.
        """
        ...


class LineReader:
    """Reads a line at a time; between two lines of quotes several."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def read(self, beginning: str = "") -> str | None:
        speak()
        line = self._line()
        if line is None or not is_open(line):
            return line
        lines = [line]
        while is_open("\n".join(lines)) and (line := self._line()) is not None:
            lines.append(line)
        return "\n".join(lines)

    def _line(self) -> str | None:
        line = self._stream.readline() if self._stream else ""
        return line.rstrip("\r\n") if line else None
