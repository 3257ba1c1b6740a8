"""A model behind a URL: one request, resumed where an earlier one stopped.

The bytes go to `NAME.part`. Beside it, `NAME.part.tag` keeps the server's validator (its strong
ETag, or else Last-Modified): the rest is only asked for if the file is still the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from spec_cpu import __version__
from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import Model, UrlSource
from spec_cpu.models.fetch import reach
from spec_cpu.models.fetch.reach import within
from spec_cpu.models.fetch.store import CHUNK, place, rests
from spec_cpu.progress import Progress

TIMEOUT = 30.0  # seconds without a byte
_PARTIAL = 206
_RANGE_REFUSED = 416


@dataclass(frozen=True, slots=True)
class _Part:
    """The unfinished file, and what it is the beginning of."""

    file: Path
    tag: Path

    def resumable(self) -> tuple[int, str]:
        """How many bytes are here and their validator; (0, "") if they cannot be built upon."""
        if not (self.file.is_file() and self.tag.is_file()):
            return 0, ""
        size, validator = self.file.stat().st_size, self.tag.read_text(encoding="utf-8")
        return (size, validator) if size and validator else (0, "")

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)
        self.tag.unlink(missing_ok=True)


class _InterruptedError(Exception):
    """The connection ended before the file did."""


def obtain(model: Model, source: UrlSource, target: Path, report: Progress) -> None:
    """Download `source` to `target`.

    Raises:
        CatalogError: the server is unreachable, refuses, or stops halfway (what came is kept, to
            be resumed), or the file has another checksum than the catalogue says.
        OSError: from the disk.
    """
    part = _Part(*rests(target))
    response, start = _connect(source.url, model, part)
    with closing(response):
        try:
            _receive(response, start, part, model, report)
        finally:
            if not part.resumable()[0]:
                part.forget()
    try:
        place(part.file, target, model, report)
    except CatalogError:
        part.forget()  # not to be built upon
        raise
    part.forget()


def _connect(url: str, model: Model, part: _Part) -> tuple[Any, int]:
    """The response, and how many bytes precede its body: all that are here, or none."""
    start, validator = part.resumable()
    if start:
        response = _open(url, model, {"Range": f"bytes={start}-", "If-Range": validator})
        if response is not None and response.status != _PARTIAL:
            return response, 0
        if response is not None and _continues(response, start, validator):
            return response, start
        part.forget()
    response = _open(url, model, {})
    if response is None:
        raise CatalogError(f"{url} has no bytes to send for {model.name}: check the url")
    return response, 0


def _open(url: str, model: Model, headers: dict[str, str]) -> Any:
    """The response of the server, or None if it has nothing in the range asked for."""
    request = Request(url, headers={"User-Agent": f"spec-cpu/{__version__}", **headers})
    try:
        return within(reach.PATIENCE, lambda: urlopen(request, timeout=TIMEOUT))
    except HTTPError as error:
        error.close()
        if error.code == _RANGE_REFUSED:
            return None
        raise CatalogError(
            f"{url} answers {error.code} {error.reason}: check the url of {model.name} in the "
            "catalogue"
        ) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise CatalogError(
            f"cannot reach {urlsplit(url).netloc or url} for {model.name}: {reason}. Check the "
            "network and the proxy, or give the path of a GGUF file that is on this machine"
        ) from error


def _continues(response: Any, start: int, validator: str) -> bool:
    """Is this the rest of the very file that we have the first `start` bytes of?"""
    # Some servers ignore If-Range: look at the validator again. It may be left out of a 206.
    same_file = _validator(response) in ("", validator)
    same_place = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    if not (same_file and same_place):
        response.close()
    return same_file and same_place


def _validator(response: Any) -> str:
    """What If-Range may carry: a strong ETag, or else the date; empty if there is neither."""
    etag: str = response.headers.get("ETag", "")
    if etag and not etag.startswith("W/"):
        return etag
    modified: str = response.headers.get("Last-Modified", "")
    return modified


def _receive(response: Any, start: int, part: _Part, model: Model, report: Progress) -> None:
    """Write the body after the first `start` bytes of the part."""
    length = response.headers.get("Content-Length")
    total = start + int(length) if length else None
    done = start
    try:
        with part.file.open("ab" if start else "wb") as file:
            if not start:
                part.tag.write_text(_validator(response), encoding="utf-8")
            for chunk in _chunks(response):
                file.write(chunk)
                done += len(chunk)
                report(f"downloading {model.name}", done, total or model.bytes)
        if total is not None and done < total:
            raise _InterruptedError("the connection was closed")
    except _InterruptedError as error:
        expected = f" of {total:,}" if total else ""
        how = "resume" if part.resumable()[0] else "start over"
        raise CatalogError(
            f"the download of {model.name} stopped after {done:,}{expected} bytes: {error}. Run "
            f"the same command again to {how}"
        ) from error


def _chunks(response: Any) -> Iterator[bytes]:
    # Apart from writing, so that errors of the network and of the disk do not mix.
    try:
        while chunk := response.read(CHUNK):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _InterruptedError(error) from error
