"""Fetched models in the cache folder: their names, their checksums, and how they get into place."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spec_cpu.cache import cache_dir
from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import Model, QuantizeSource, load_catalog
from spec_cpu.progress import Progress

CHUNK = 1 << 20  # bytes read at a time
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NAME = re.compile(r"\.?(?P<file>.+-[0-9a-f]{8}\.gguf)(\.part|\.part\.tag|\.staging)?")
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_TAKEN = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY}  # by a file, or a folder


def cache_path(model: Model) -> Path:
    """The file in the cache for `model`, whether or not it is there.

    Its name depends on the source, so that an entry that was changed is fetched anew.
    """
    return cache_dir() / f"{model.name}-{_fingerprint(model)}.gguf"


def cached_files() -> dict[Path, list[Path]]:
    """The file of each model in the cache folder, and what there is of it, be it unfinished."""
    found: dict[Path, list[Path]] = {}
    for path in sorted(cache_dir().glob("*")):
        if name := _NAME.fullmatch(path.name):
            found.setdefault(path.with_name(name["file"]), []).append(path)
    return found


def rests(file: Path) -> list[Path]:
    """What an unfinished download of `file` left beside it, to be resumed."""
    return [file.with_name(f"{file.name}{end}") for end in (".part", ".part.tag")]


def _fingerprint(model: Model) -> str:
    parts = [repr(model.source), model.sha256 or ""]
    if isinstance(model.source, QuantizeSource):
        parts.append(_fingerprint(load_catalog().model(model.source.of)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


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


@contextmanager
def reporting_removal(file: Path) -> Iterator[None]:
    """Turn what prevents the removal of `file` into one line."""
    try:
        yield
    except TimeoutError:
        raise CatalogError(
            f"another process is fetching {file}: try again when it is done"
        ) from None
    except OSError as error:
        raise CatalogError(f"cannot remove {file}: {error.strerror}") from error


def _storage_problem(error: OSError, name: str, folder: Path) -> str:
    choose = "set SPEC_CPU_CACHE to"
    if error.errno in _FULL:
        return f"no space left in {folder} for {name}: free some, or {choose} a folder elsewhere"
    if error.errno in _FORBIDDEN:
        cause = f"cannot write to {folder} to store {name}"
        return f"{cause}: check its permissions, or {choose} another folder"
    cause = f"cannot store {name} in {folder} ({error.strerror})"
    if error.errno in _TAKEN:
        return f"{cause}: move away what is in its place, or {choose} another folder"
    return f"{cause}: {choose} a folder that can be written to"
