"""What the tests of fetching share: a content, entries of the catalogue, a web server."""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from spec_cpu.cache import cache_dir
from spec_cpu.models.catalog import Model, Source, user_file

PATIENCE = 300.0  # seconds until something counts as stuck, on however busy a machine
CONTENT = bytes(range(256)) * 40_000  # about 10 MB: several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def model(source: Source, *, name: str = "tiny", sha256: str | None = None) -> Model:
    return Model(name, "F", "1M", "Q4_0", "MIT", source, sha256=sha256)


def add_to_catalog(source: str) -> None:
    """Make `tiny` a name in the user's catalogue."""
    user_file().parent.mkdir(parents=True)
    user_file().write_text(
        '[models.tiny]\nfamily = "F"\nparameters = "1M"\nquantization = "Q4_0"\nlicense = "MIT"\n'
        f"source = {{ {source} }}\n"
    )


def leftovers() -> list[str]:
    """What is in the cache apart from locks."""
    return sorted(file.name for file in cache_dir().iterdir() if not file.name.endswith(".lock"))


def assert_matches(error: Exception, pattern: str) -> None:
    assert re.search(pattern, str(error)), str(error)


@dataclass
class Reports:
    """Collects what a Progress is told."""

    calls: list[tuple[str, int, int | None]] = field(default_factory=list)

    def __call__(self, label: str, done: int, total: int | None) -> None:
        self.calls.append((label, done, total))

    def of(self, label: str) -> list[tuple[int, int | None]]:
        return [(done, total) for said, done, total in self.calls if said == label]


@dataclass
class Site:
    """A server of one file, with the manners that a test chooses."""

    content: bytes = CONTENT
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"1"'})
    ranges: bool = True
    heeds_if_range: bool = True
    cut: int | None = None  # bytes after which the connection breaks
    answers: threading.Event = field(default_factory=threading.Event)  # not before it is set
    requests: list[dict[str, str]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)  # there was a request
    url: str = ""

    def __post_init__(self) -> None:
        self.answers.set()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(dict(request.headers))
        self.asked.set()
        assert self.answers.wait(PATIENCE)
        if request.path != "/m.gguf":
            request.send_error(404)
            return
        start = self.start(request)
        if start >= len(self.content):
            request.send_error(416)
            return
        body = self.content[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body)))
        if start:
            end = len(self.content) - 1
            request.send_header("Content-Range", f"bytes {start}-{end}/{len(self.content)}")
        for key, value in self.headers.items():
            request.send_header(key, value)
        request.end_headers()
        with suppress(ConnectionError):  # who asked may have left
            request.wfile.write(body if self.cut is None else body[: self.cut])

    def start(self, request: BaseHTTPRequestHandler) -> int:
        asked = request.headers.get("Range")
        if not asked or not self.ranges:
            return 0
        if self.heeds_if_range and request.headers["If-Range"] not in self.headers.values():
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))
