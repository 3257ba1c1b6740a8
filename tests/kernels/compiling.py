"""A compiler that compiles nothing, and what a person is told where kernels cannot be had."""

from __future__ import annotations

import os
import select
from pathlib import Path

import spec_cpu
from spec_cpu.kernels.build import Build

PATIENCE = 300.0  # seconds after which a process counts as stuck, on however busy a machine


class Copier:
    """Hands out a library that was compiled before, or another file.

    It says through one pipe that it runs, and may be told to wait for a line from another.
    """

    def __init__(self, folder: Path, real: Build) -> None:
        self.script = folder / "copies"
        self._runs = folder / "runs"
        self._real = real
        self._pipes = [folder / name for name in ("running", "go-on")]
        for pipe in self._pipes:
            os.mkfifo(pipe)
        # Open for both at this end: whichever comes first need not wait for the other.
        self._running, self._go_on = (os.open(pipe, os.O_RDWR) for pipe in self._pipes)
        self.hands_out()

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._running)
        os.close(self._go_on)

    def hands_out(self, library: Path | None = None) -> None:
        """From now on it copies this, at once; default: what was compiled before."""
        self._write(library or self._real.library, "true")

    def waits(self) -> None:
        """From now on it says that it runs, and then waits for `go_on`."""
        running, go_on = self._pipes
        self._write(self._real.library, f"echo > {running}; read _ < {go_on}")

    def wait_until_it_runs(self) -> None:
        assert select.select([self._running], [], [], PATIENCE)[0], "it was not called"
        os.read(self._running, 1)

    def go_on(self) -> None:
        os.write(self._go_on, b"\n")

    def _write(self, copied: Path, first: str) -> None:
        self.script.write_text(
            f"""#!/bin/sh
            case "$*" in *--version) echo "{self._real.compiler_version}"; exit;; esac
            echo run >> {self._runs}
            {first}
            while [ "$1" != -o ]; do shift; done
            cp {copied} "$2"
            """
        )
        self.script.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().split()) if self._runs.exists() else 0


def notice_of(model: Path) -> str:
    """What a person is told who wants kernels and gets stock ones, which work."""
    with spec_cpu.load(model, "none", kernels="on") as session:
        assert session.kernels == "stock"
        assert list(session.generate("a", max_tokens=4, raw=True, ignore_eos=True))
        return " ".join(session.notices)
