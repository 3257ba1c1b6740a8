"""An RPC server in a process of its own, where llama.cpp can be one."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import llama_cpp
import pytest

from spec_cpu.rpc.servers import Server

_PROGRAM = Path(__file__).with_name("rpc_server.py")

needs_rpc = pytest.mark.skipif(
    not llama_cpp.llama_supports_rpc(), reason="llama-cpp-python was built without GGML_RPC"
)


class RunningServer:
    """A server in a process of its own."""

    def __init__(self, port: int | None = None) -> None:
        """Start it on a free port, or on `port`, and wait until it listens."""
        if port is None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
        self.address = Server("127.0.0.1", port)
        self._process = subprocess.Popen(
            [sys.executable, _PROGRAM, str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert any("transport" in line for line in self._process.stdout), "it did not start"
        while not self._listens():
            pass

    def _listens(self) -> bool:
        """The line before says that it is about to."""
        assert self._process.poll() is None
        with socket.socket() as trial:
            return trial.connect_ex((self.address.host, self.address.port)) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
