"""A server that runs in a thread of the tests, for what needs real connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from spec_cpu.serve.http.app import make_app
from spec_cpu.serve.http.server import address, listen
from spec_cpu.serve.http.service import Service


@contextmanager
def running(service: Service) -> Iterator[str]:
    """Its address, while it runs."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(make_app(service), log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield address(listening)
    finally:
        server.force_exit = server.should_exit = True
        thread.join()
