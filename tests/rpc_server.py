"""llama.cpp's RPC server on one processor of this machine, where llama.cpp can be one.

`python rpc_server.py PORT` is the server: the function that llama.cpp's own program calls.
"""

from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
from typing import Any

import llama_cpp
import pytest
from llama_cpp.llama_cpp import _lib

from spec_cpu.rpc.servers import Server

_CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU

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
            [sys.executable, __file__, str(port)], stdout=subprocess.PIPE, text=True
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


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = _lib[name]
    found.restype, found.argtypes = result, arguments
    return found


def _main() -> None:
    address, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    backend = _function("ggml_backend_reg_by_name", address, text)(b"RPC")
    entry = _function("ggml_backend_reg_get_proc_address", address, address, text)
    device = _function("ggml_backend_dev_by_type", address, ctypes.c_int)(_CPU)
    start = ctypes.CFUNCTYPE(None, text, text, size, size, address)(
        entry(backend, b"ggml_backend_rpc_start_server")
    )
    libc = ctypes.CDLL(None)
    stdout = ctypes.c_void_p.in_dll(libc, "stdout")
    libc.setvbuf(stdout, None, 2, 0)  # _IONBF: who started it reads what it says
    start(f"127.0.0.1:{sys.argv[1]}".encode(), None, 1, 1, (address * 1)(device))


if __name__ == "__main__":
    _main()
