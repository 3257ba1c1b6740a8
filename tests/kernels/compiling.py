"""A compiler that compiles nothing, and what a person is told where kernels cannot be had."""

from __future__ import annotations

from pathlib import Path

import spec_cpu
from spec_cpu.kernels.build import Build


class Copier:
    def __init__(self, folder: Path, real: Build) -> None:
        self.script = folder / "copies"
        self._runs = folder / "runs"
        self._real = real
        self.takes(0)

    def takes(self, seconds: float, library: Path | None = None) -> None:
        """From now on it is as slow as this, and hands out that."""
        copied = library or self._real.library
        self.script.write_text(
            f"""#!/bin/sh
            case "$*" in *--version) echo "{self._real.compiler_version}"; exit;; esac
            echo run >> {self._runs}
            sleep {seconds}
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
