"""The cache folder: where files go, who may write, and how they get into place whole."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spec_cpu.catalog import Model, QuantizeSource, load_catalog
from spec_cpu.errors import CatalogError, UsageError
from spec_cpu.progress import Progress

CHUNK = 1 << 20  # bytes read at a time
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def cache_dir() -> Path:
    """Where fetched models are kept: `SPEC_CPU_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("SPEC_CPU_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise UsageError(f"SPEC_CPU_CACHE is {chosen}, but there is no such user") from None
    from platformdirs import user_cache_path

    return user_cache_path("spec-cpu")


def cache_path(model: Model) -> Path:
    """The file in the cache for `model`, whether or not it is there.

    Its name depends on the source, so that an entry that was changed is fetched anew.
    """
    return cache_dir() / f"{model.name}-{_fingerprint(model)}.gguf"


def _fingerprint(model: Model) -> str:
    parts = [repr(model.source), model.sha256 or ""]
    if isinstance(model.source, QuantizeSource):
        parts.append(_fingerprint(load_catalog().model(model.source.of)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


@contextmanager
def locked(target: Path, to: str, report: Progress, seconds: float = -1) -> Iterator[None]:
    """Be the only process that obtains `target`; waits for the one that is at it.

    Args:
        to: what both want to do, for `report`.
        seconds: to wait at most; negative: for as long as it takes.

    Raises:
        TimeoutError: that was not enough.
    """
    from filelock import FileLock, Timeout

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=target.parent):
        pass  # a folder that cannot be written to says so here; the lock would wait for ever
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another process to {to}", 0, None)
        lock.acquire(timeout=seconds)
    try:
        yield
    finally:
        lock.release()


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


def place(file: Path, target: Path, model: Model, report: Progress) -> None:
    """Check `file`, then move it to `target` in one step.

    Raises:
        CatalogError: its checksum is not the one in the catalogue; `file` is removed.
    """
    check(file, model, report)
    os.replace(file, target)


def check(file: Path, model: Model, report: Progress) -> None:
    """Compare the SHA-256 of `file` with the one in the catalogue, if that has one.

    Raises:
        CatalogError: they differ; `file` is removed.
    """
    if model.sha256 is None:
        return
    found = _sha256(file, model.name, report)
    if found != model.sha256:
        file.unlink()
        raise CatalogError(
            f"what was fetched for {model.name} is not the file in the catalogue: its SHA-256 "
            f"begins with {found[:12]}, not {model.sha256[:12]}. It was removed: try again, and "
            "if it stays so, the source has changed or is not to be trusted"
        )


def _sha256(file: Path, name: str, report: Progress) -> str:
    digest = hashlib.sha256()
    total = file.stat().st_size
    done = 0
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report(f"checking {name}", done, total)
    return digest.hexdigest()


@contextmanager
def reporting_storage(name: str, folder: Path) -> Iterator[None]:
    """Turn what the disk has to say into one line; errors of the network are handled before."""
    try:
        yield
    except OSError as error:
        raise CatalogError(_storage_problem(error, name, folder)) from error


def _storage_problem(error: OSError, name: str, folder: Path) -> str:
    elsewhere = "or set SPEC_CPU_CACHE to a folder on another disk"
    if error.errno in _FULL:
        return f"no space left in {folder} for {name}: free some, {elsewhere}"
    if error.errno in _FORBIDDEN:
        return f"cannot write to {folder} to store {name}: check its permissions, {elsewhere}"
    return f"cannot store {name} in {folder} ({error.strerror}): free its name, {elsewhere}"
