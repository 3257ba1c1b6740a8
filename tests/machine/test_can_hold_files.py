"""Where files can be made, told before anything is made there."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_cpu.cache import can_hold_files


def test_a_folder_that_can_be_made_holds_files(tmp_path: Path) -> None:
    assert can_hold_files(tmp_path)
    assert can_hold_files(tmp_path / "not" / "there" / "yet")


def test_below_a_file_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not can_hold_files(tmp_path / "file")
    assert not can_hold_files(tmp_path / "file" / "below")


def test_a_folder_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not can_hold_files(tmp_path / "below")
