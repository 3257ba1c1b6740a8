"""Files that are written in one step."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spec_cpu.cache import create_private, replacing


@pytest.mark.parametrize("error", [OSError, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("written", [False, True])
def test_what_was_there_stays_and_nothing_beside_it(
    tmp_path: Path, error: type[BaseException], written: bool
) -> None:
    file = tmp_path / "kept"
    file.write_text("before")

    def fail(part: Path) -> None:
        if written:
            part.write_text("half")
        raise error

    with pytest.raises(error), replacing(file) as part:
        fail(part)
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["kept"]


def test_until_it_is_complete_nobody_sees_it(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    with replacing(file) as part:
        part.write_text("new")
        assert not file.exists()
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["kept"]


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    with replacing(file) as left:
        left.write_text("done")
    left.write_text("half")  # as a process of the same number would leave it
    with replacing(file) as part:
        create_private(part, b"new")
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["kept"]


def test_a_private_file_is_the_users_alone(tmp_path: Path) -> None:
    create_private(tmp_path / "said", b"hi", b" there")
    assert (tmp_path / "said").read_bytes() == b"hi there"
    assert stat.S_IMODE((tmp_path / "said").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "said", b"other")
