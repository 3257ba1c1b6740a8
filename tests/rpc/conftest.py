"""RPC servers on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from rpc_server import RunningServer


@pytest.fixture
def running() -> Iterator[list[RunningServer]]:
    """Two servers; more may be added."""
    with ExitStack() as stack:
        servers: list[RunningServer] = []
        stack.callback(lambda: [server.kill() for server in servers])
        servers += [RunningServer() for _ in range(2)]
        yield servers
