"""A server before an engine that says what it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_engine import FakeEngine
from live_server import running
from serving import MARKS, TEMPLATE, Serve
from starlette.testclient import TestClient

from spec_cpu.llama.model import Model
from spec_cpu.serve.http.app import make_app
from spec_cpu.serve.http.service import Service
from spec_cpu.serve.http.settings import HttpSettings


@pytest.fixture(scope="session")
def served_path(models: Path) -> Path:
    """A model that reads any text, and whose template knows functions."""
    tokens = [*tiny.vocabulary(320), *MARKS]
    return tiny.write_llama(
        models / "served.gguf", tokens=tokens, n_ctx=2048, chat_template=TEMPLATE, scale=3
    )


@pytest.fixture(scope="session")
def served_model(served_path: Path) -> Iterator[Model]:
    with Model(served_path) as model:
        yield model


@pytest.fixture
def engine(served_model: Model) -> Iterator[FakeEngine]:
    engine = FakeEngine(served_model)
    yield engine
    engine.close()


@pytest.fixture
def serve(engine: FakeEngine) -> Serve:
    """Makes a client of a server with these settings."""

    def make(host: str = "127.0.0.1", headers: Any = None, **settings: Any) -> TestClient:
        service = Service(engine, HttpSettings(name="tiny", host=host, **settings))
        return TestClient(
            make_app(service),
            "http://127.0.0.1",
            raise_server_exceptions=False,
            headers=headers,
        )

    return make


@pytest.fixture
def client(serve: Serve) -> TestClient:
    return serve()


@pytest.fixture
def live(engine: FakeEngine) -> Iterator[str]:
    """The address of a server that runs."""
    with running(Service(engine, HttpSettings(name="tiny"))) as url:
        yield url
