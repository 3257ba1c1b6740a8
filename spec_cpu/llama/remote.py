"""Layers of a model on other machines, by llama.cpp's RPC backend."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib.metadata import version
from typing import Any

import llama_cpp
from llama_cpp.llama_cpp import _lib

from spec_cpu.errors import RemoteError
from spec_cpu.rpc.relay import Relay
from spec_cpu.rpc.servers import MOST, Server

_BUILD = ("pip", "install", "--force-reinstall", "--no-cache-dir", "llama-cpp-python")
_OUTPUT = rb"^(output|token_embd)\.weight$"  # what makes logits of the last layer's output


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override, which the binding has with other types."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def check_supported() -> None:
    """Raise RemoteError, with what to do, where llama.cpp was built without its RPC backend."""
    if not llama_cpp.llama_supports_rpc():
        raise RemoteError(
            "this llama-cpp-python was built without RPC, so `rpc` cannot be used: "
            f"CMAKE_ARGS=-DGGML_RPC=on {' '.join(_BUILD)}=={version('llama-cpp-python')}"
        )


class Remote:
    """The devices of RPC servers, for the layers of one model."""

    def __init__(self, servers: Sequence[Server]) -> None:
        """Connect to `servers`.

        Raises:
            RemoteError: llama.cpp cannot, or one of them cannot be used.
        """
        check_supported()
        with ExitStack() as undo:
            self._relays = [undo.enter_context(closing(Relay(server))) for server in servers]
            self._devices = [each for relay in self._relays for each in _devices(relay)]
            self.check()
            if len(self._devices) > MOST:
                raise RemoteError(
                    f"the servers have {len(self._devices)} devices, but llama.cpp takes {MOST}: "
                    "name fewer with `rpc`"
                )
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Let go of the servers, once the model was freed. A second call does nothing."""
        self._undo.close()

    def check(self) -> None:
        """Raise RemoteError if a server was lost: what passes gave since then means nothing."""
        for relay in self._relays:
            if relay.lost is not None:
                raise RemoteError(
                    f"the RPC server {relay.server} was lost ({relay.lost}): start it again, and "
                    "load the model anew"
                )

    @property
    def free_memory(self) -> int:
        """Bytes that the devices have free together. Raises as `check`."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        size = ctypes.POINTER(ctypes.c_size_t)
        memory_of = _function("ggml_backend_dev_memory", None, ctypes.c_void_p, size, size)
        memory = 0
        for device in self._devices:
            memory_of(device, ctypes.byref(free), ctypes.byref(total))
            memory += free.value
        self.check()
        return memory

    def take_layers(self, params: llama_cpp.llama_model_params) -> None:
        """Have `params` put all layers on the devices, in parts by the memory that they have free.

        The output matrix stays here: the row that it makes of a state is many times as long.
        """
        self._list = (ctypes.c_void_p * (len(self._devices) + 1))(*self._devices)
        here = _function("ggml_backend_cpu_buffer_type", ctypes.c_void_p)
        self._overrides = (_Override * 2)(_Override(_OUTPUT, here()))
        params.devices = ctypes.addressof(self._list)
        params.tensor_buft_overrides = ctypes.addressof(self._overrides)
        params.n_gpu_layers = -1  # all


def _devices(relay: Relay) -> list[int]:
    """What llama.cpp knows the devices of a server by; it keeps them for good."""
    address, text = ctypes.c_void_p, ctypes.c_char_p
    find = _function("ggml_backend_reg_by_name", address, text)
    entry = _function("ggml_backend_reg_get_proc_address", address, address, text)
    count = _function("ggml_backend_reg_dev_count", ctypes.c_size_t, address)
    get = _function("ggml_backend_reg_dev_get", address, address, ctypes.c_size_t)
    add = ctypes.CFUNCTYPE(address, text)(entry(find(b"RPC"), b"ggml_backend_rpc_add_server"))
    server = add(relay.endpoint.encode())
    return [get(server, i) for i in range(count(server))] if server else []


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of ggml's, which the binding does not have."""
    function = _lib[name]
    function.restype, function.argtypes = result, arguments
    return function
