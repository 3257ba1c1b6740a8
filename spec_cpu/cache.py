"""The folders of what is kept, and how processes make files there: one at a time, in one step."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spec_cpu.errors import UsageError
from spec_cpu.progress import Progress


def cache_dir() -> Path:
    """Where fetched models are kept: `SPEC_CPU_CACHE`, or the user's cache folder."""
    from platformdirs import user_cache_path

    return _chosen("SPEC_CPU_CACHE") or user_cache_path("spec-cpu")


def data_dir() -> Path:
    """Where what a person said is kept: `SPEC_CPU_DATA`, or the user's data folder."""
    from platformdirs import user_data_path

    return _chosen("SPEC_CPU_DATA") or user_data_path("spec-cpu")


def _chosen(variable: str) -> Path | None:
    chosen = os.environ.get(variable)
    if not chosen:
        return None
    try:
        return Path(chosen).expanduser()
    except RuntimeError:
        raise UsageError(f"{variable} is {chosen}, but there is no such user") from None


def lock_file(target: Path) -> Path:
    """The file whose lock is that of `target`: beside it in our own folders, for it stays there.

    What is in one of them by a link is in it, too: several caches may share what is linked.
    """
    places = (os.path.abspath(target), os.path.realpath(target))
    for ours in map(Path, (cache_dir(), data_dir())):
        for place in map(Path, places):
            if place.is_relative_to(ours.absolute()) or place.is_relative_to(ours.resolve()):
                return target.with_name(f".{target.name}.lock")
    name = hashlib.blake2b(os.fsencode(places[1]), digest_size=8).hexdigest()
    return cache_dir() / "locks" / f"{name}.lock"


@contextmanager
def locked(target: Path, to: str, report: Progress, seconds: float = -1) -> Iterator[None]:
    """Hold the lock on `target`; wait while another process holds it.

    Args:
        to: what the lock is needed for, as `report` says it.
        seconds: to wait at most; negative: for as long as it takes.

    Raises:
        TimeoutError: that was not enough.
    """
    from filelock import FileLock, Timeout

    place = lock_file(target)
    for folder in (target.parent, place.parent):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # a folder that cannot be written to says so here; the lock would wait for ever
    lock = FileLock(place)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process to {to}", 0, None)
        lock.acquire(timeout=seconds)
    try:
        yield
    finally:
        lock.release()


def can_hold_files(folder: Path) -> bool:
    """May files be made in `folder`, which itself may have to be made? A full disk is not seen."""
    there = next(one for one in (folder, *folder.parents) if os.path.exists(one))
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place in one step; nobody need hold a lock.

    Raises:
        OSError: it cannot. What was there stays, and nothing is left beside it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # of a process of this number that was killed
    try:
        yield part
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Write the file in one step, and the folder that it is in; nobody need hold a lock.

    Raises:
        OSError: it cannot be written. What was there stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_private(path: Path, *parts: bytes | memoryview) -> None:
    """Write the file in one step, private to the user; only for the holder of the lock on `path`.

    Raises:
        OSError: it cannot be written. What was there stays.
    """
    with staging(path) as folder:
        create_private(folder / "part", *parts)
        os.replace(folder / "part", path)


def create_private(path: Path, *parts: bytes | memoryview) -> None:
    """Make the file, private to the user from the first byte on. Raises OSError: it is there."""
    new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(new, "wb") as file:
        file.writelines(parts)


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, on the same disk, that is gone afterwards."""
    folder = target.with_name(f".{target.name}.staging")
    # Only the holder of the lock comes here: what is there was left by a process that was killed.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove(file: Path, seconds: float = 0) -> None:
    """Remove `file`, and what a process that was killed while it made it left.

    Args:
        seconds: to wait at most for a process that is making it.

    Raises:
        TimeoutError: that was not enough.
        OSError: it cannot be removed.
    """
    # `staging` begins and ends with nothing beside it.
    with locked(file, "make it", lambda *_: None, seconds), staging(file):
        file.unlink(missing_ok=True)


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 where there is none."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
