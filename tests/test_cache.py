"""Where the lock of a file is: the same for all who mean that file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_cpu.cache import lock_file


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_in_the_cache_it_is_beside_the_file(cache: Path) -> None:
    assert lock_file(cache / "costs" / "a.json").parent == cache / "costs"


def test_nothing_stays_beside_a_persons_own_file(cache: Path, tmp_path: Path) -> None:
    assert lock_file(tmp_path / "mine" / "a.state").parent == cache / "locks"


def test_caches_that_share_a_linked_folder_share_its_locks(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    locks = set()
    for name in ("one", "another"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kernels").symlink_to(shared)
        monkeypatch.setenv("SPEC_CPU_CACHE", str(folder))
        lock = lock_file(folder / "kernels" / "library.so")
        locks.add(lock.parent.resolve() / lock.name)
    assert len(locks) == 1
