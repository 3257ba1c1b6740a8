"""llama.cpp's RPC protocol, as far as one must know it to stand between its two ends.

A request is a command (a byte), a size (8 bytes) and as many bytes more. To some commands there is
an answer: a size and as many bytes. All numbers are little-endian. The source is
`ggml/src/ggml-rpc/ggml-rpc.cpp` of the llama.cpp inside the llama-cpp-python that is required.
"""

from __future__ import annotations

from struct import Struct

VERSION = (7, 0)  # major, which must be the same, and the latest minor one that is understood
HELLO = 14
REQUEST = Struct("<BQ")
SIZE = Struct("<Q")

_GET_TENSOR = 8
_CAPABILITIES = 24  # bytes; all zero: plain TCP
_GREETING = Struct(f"<4B{_CAPABILITIES}x")  # major, minor, patch, nothing
_BASE, _ALIGNMENT, _MOST = 1 << 12, 64, 1 << 40  # of a buffer; an address that nobody looks at
_STAND_INS = {
    0: bytes(16),  # ALLOC_BUFFER: there is no memory
    1: SIZE.pack(_ALIGNMENT),  # GET_ALIGNMENT
    2: SIZE.pack(_MOST),  # GET_MAX_SIZE
    3: SIZE.pack(_BASE),  # BUFFER_GET_BASE
    7: b"\1",  # SET_TENSOR_HASH: the data are there, and need not be sent
    9: b"\1",  # COPY_TENSOR: done
    11: SIZE.pack(_MOST) * 2,  # GET_DEVICE_MEMORY: free, total
    13: SIZE.pack(0),  # GET_ALLOC_SIZE: what the tensor has
    15: bytes(4),  # DEVICE_COUNT: none
}


def hello() -> bytes:
    """The request that a connection begins with."""
    return REQUEST.pack(HELLO, _CAPABILITIES) + bytes(_CAPABILITIES)


def greeting(major: int = VERSION[0], minor: int = VERSION[1], patch: int = 0) -> bytes:
    """The answer to `hello` of a server with this version of the protocol."""
    return _GREETING.pack(major, minor, patch, 0)


def version(greeting: bytes) -> tuple[int, int]:
    """The version of the server that answered `greeting`: major and minor."""
    major, minor, *_ = _GREETING.unpack(greeting)
    return major, minor


def stand_in(command: int, body: bytes) -> bytes | None:
    """What llama.cpp goes on with, whatever the request: of the size that it waits for.

    Args:
        body: of the request: all of it, or the end.

    Returns:
        None for a command without an answer.
    """
    if command == _GET_TENSOR:  # the request ends with the size of what is asked for
        return bytes(SIZE.unpack(body[-SIZE.size :])[0])
    return _STAND_INS.get(command)
