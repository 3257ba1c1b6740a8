"""Threads that an engine leaves behind when it was loaded."""

from __future__ import annotations

from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import pytest
from served import opened

from spec_cpu.errors import SpecCpuError
from spec_cpu.parts import Parts, load_parts
from spec_cpu.serve.engine import loading


def test_what_loads_is_gone_before_the_engine_answers(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that computes has a team of OpenMP's; two teams put each other to sleep."""
    loaded_in: list[Thread] = []

    def load(*args: Any, **how: Any) -> Parts:
        loaded_in.append(current_thread())
        return load_parts(*args, **how)

    monkeypatch.setattr(loading, "load_parts", load)
    with opened(target):
        assert [thread.is_alive() for thread in loaded_in] == [False]


def test_errors_of_loading_are_the_callers(tmp_path: Path) -> None:
    with pytest.raises(SpecCpuError, match="no-such"), opened(tmp_path / "no-such.gguf"):
        pass
