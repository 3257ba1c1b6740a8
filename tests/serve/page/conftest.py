"""A browser, a server that says what a test wants, and the page in both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="pip install playwright")
pytest.importorskip("starlette", reason="pip install starlette uvicorn")
pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")

from chat_page import ChatPage
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from stub_server import Stub

_PATIENCE = 60_000  # milliseconds: other tests have the processors, too
expect.set_options(timeout=_PATIENCE)

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# Those that a browser for tests needs as root, and in a place without other computers.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. A module has its own: while it is there no other test may run an event loop."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    made = Stub()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def stub(server: Stub) -> Stub:
    """The server, as if it had just begun."""
    server.reset()
    return server


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A person's browser: tabs share what it keeps."""
    made = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    made.set_default_timeout(_PATIENCE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tab(context: BrowserContext, server: Stub) -> ChatPage:
    """A tab that tests use in turn: a new one takes a second."""
    return ChatPage(context.new_page(), server)


@pytest.fixture
def fresh(tab: ChatPage, stub: Stub) -> Iterator[ChatPage]:
    """A tab of a browser that has never been here. Nothing may go wrong in it unseen."""
    tab.forget()
    yield tab
    assert tab.problems == []


@pytest.fixture
def chat(fresh: ChatPage) -> ChatPage:
    """The page, opened."""
    fresh.open()
    return fresh
