"""Which kernels a model is loaded with, by what was timed once."""

from __future__ import annotations

from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest

from spec_cpu.kernels import autotune

QUICK, SLOW = [0.1, 0.2], [0.3, 0.4]


class Trials:
    """The model is timed with both kinds of kernels; `times` says how often it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Path, folder: Path) -> None:
        self.times, self.now, self.model = 0, time() + 60, model
        self.stock, self.ours, self.disturbed = QUICK, SLOW, None
        self.build: Any = SimpleNamespace(folder=folder, library=folder / "library.so")
        monkeypatch.setattr(autotune, "_times", self._timed)
        monkeypatch.setattr(autotune, "time", lambda: self.now)
        monkeypatch.setattr(autotune, "disturbance", lambda *_: self.disturbed)

    stock: list[float]
    ours: list[float]
    disturbed: str | None

    def _timed(self, _model: Path, library: Path | None, _threads: int) -> list[float]:
        self.times += library is not None
        return self.stock if library is None else self.ours

    def gains(self) -> bool:
        """Are our kernels taken at this start?"""
        return autotune.Kernels("off")._gains(self.model, self.build, None)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> Trials:
    return Trials(monkeypatch, model, tmp_path)


@pytest.mark.parametrize("faster", [True, False])
def test_a_quiet_trial_decides_for_good(trials: Trials, faster: bool) -> None:
    trials.stock, trials.ours = (SLOW, QUICK) if faster else (QUICK, SLOW)
    for _ in range(3):
        assert trials.gains() is faster
        trials.now += 99 * 24 * 3600
    assert trials.times == 1


def test_a_busy_moment_does_not_decide_and_is_not_for_ever(trials: Trials) -> None:
    trials.disturbed = "other programs used 1.5 of 2 processors"
    assert trials.gains()
    assert trials.gains()
    assert trials.times == 1, "once an hour"
    trials.disturbed = None
    trials.now += 3700
    assert not trials.gains()
    assert not trials.gains()
    assert trials.times == 2
