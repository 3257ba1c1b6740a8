"""llama.cpp's RPC server on one processor of this machine: `python rpc_server.py PORT`.

It is the function that llama.cpp's own program calls; "transport" is printed when it listens.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from llama_cpp.llama_cpp import _lib

_CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU


def function(name: str, result: Any, *arguments: Any) -> Any:
    found = _lib[name]
    found.restype, found.argtypes = result, arguments
    return found


def main() -> None:
    address, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    backend = function("ggml_backend_reg_by_name", address, text)(b"RPC")
    entry = function("ggml_backend_reg_get_proc_address", address, address, text)
    device = function("ggml_backend_dev_by_type", address, ctypes.c_int)(_CPU)
    start = ctypes.CFUNCTYPE(None, text, text, size, size, address)(
        entry(backend, b"ggml_backend_rpc_start_server")
    )
    libc = ctypes.CDLL(None)
    stdout = ctypes.c_void_p.in_dll(libc, "stdout")
    libc.setvbuf(stdout, None, 2, 0)  # _IONBF: who started it reads what it says
    start(f"127.0.0.1:{sys.argv[1]}".encode(), None, 1, 1, (address * 1)(device))


if __name__ == "__main__":
    main()
