"""Notices that are shown once a day."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

import pytest
from spec_cpu_cli.answer import show_notices

from spec_cpu.notices import DailyNotice


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))


def test_of_one_subject_one_is_shown_a_day_whatever_it_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """How long ago, and by how much, a machine was busy differs from start to start."""
    show_notices([DailyNotice("timed just now", "busy"), DailyNotice("timed an hour ago", "busy")])
    show_notices([DailyNotice("timed 2 hours ago", "busy"), DailyNotice("a full disk", "disk")])
    assert capsys.readouterr().err.splitlines() == ["note: timed just now", "note: a full disk"]
    for stamp in (tmp_path / "notices").iterdir():
        os.utime(stamp, (time() - 25 * 3600,) * 2)
    show_notices([DailyNotice("timed 9 hours ago", "busy")])
    assert capsys.readouterr().err == "note: timed 9 hours ago\n"


def test_without_a_subject_the_text_is_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_notices([DailyNotice("one"), DailyNotice("two"), DailyNotice("one")])
    assert capsys.readouterr().err == "note: one\nnote: two\n"
