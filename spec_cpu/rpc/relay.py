"""Stands between llama.cpp and one RPC server, and takes its place when that is lost."""

from __future__ import annotations

import contextlib
import socket
from io import BufferedReader
from threading import Thread
from typing import IO

from spec_cpu.errors import RemoteError
from spec_cpu.rpc import protocol
from spec_cpu.rpc.servers import Server

_PATIENCE = 5.0  # seconds for a connection, and for the first answer
_CHUNK = 1 << 20  # bytes that are passed on at once, at most
# Seconds of silence after which a machine is asked whether it is there, the pause between such
# questions, and how many stay without an answer: one that lost its power is missed after 25 s.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_UNACKNOWLEDGED = 25_000  # milliseconds for which what was sent may be


class Relay:
    """One connection to a server, which llama.cpp uses through an address on this machine.

    llama.cpp ends the process where a connection breaks, or is refused. Here it never breaks: once
    the server is lost, requests get answers of the right form that mean nothing. So a pass comes
    to its end, all can be freed, and whoever asked for the pass finds `lost`, which is set before
    the first such answer.

    Attributes:
        server: whose it is. `endpoint`: the address for llama.cpp.
        lost: why the server is lost, in a person's words; None: it is there.
    """

    def __init__(self, server: Server) -> None:
        """Connect to `server`, and check that it speaks this protocol.

        Raises:
            RemoteError: it cannot be reached, does not answer, or is another program.
        """
        self.server = server
        self.lost: str | None = None
        self._connection = _connect(server)
        self._answers = self._connection.makefile("rb")
        self._closed = False
        try:
            self._greet()
            self._listener = socket.create_server(("127.0.0.1", 0))
        except BaseException:
            self._connection.close()
            raise
        self.endpoint = "127.0.0.1:{1}".format(*self._listener.getsockname())
        Thread(target=self._run, name=f"relay to {server}", daemon=True).start()

    def close(self) -> None:
        """Let go of the server. llama.cpp must not need it any more. A second call does nothing."""
        if not self._closed:
            self._closed = True
            with socket.create_connection(self._listener.getsockname()):  # wakes who listens
                pass

    def _greet(self) -> None:
        try:
            self._connection.settimeout(_PATIENCE)
            self._connection.sendall(protocol.hello())
            answer = self._receive(len(protocol.greeting()))
            self._connection.settimeout(None)
        except TimeoutError:
            raise RemoteError(
                f"{self.server} does not answer: an RPC server serves one program at a time, and "
                "another one may be using it"
            ) from None
        except OSError:
            raise RemoteError(f"{self.server} is no RPC server of this version") from None
        major, minor = protocol.version(answer)
        ours, most = protocol.VERSION
        if major != ours or minor > most:
            raise RemoteError(
                f"{self.server} speaks version {major}.{minor} of llama.cpp's RPC protocol, and "
                f"here it is {ours}.{most}: build both from the same llama.cpp"
            )

    def _run(self) -> None:
        """Serve llama.cpp's connections: it makes one after the other."""
        with self._listener, self._connection, self._answers:
            while True:
                client, _ = self._listener.accept()
                with client:
                    if self._closed:
                        return
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with contextlib.suppress(OSError):  # llama.cpp went away
                        self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        with BufferedReader(client.makefile("rb", buffering=0), _CHUNK) as requests:
            while header := requests.read(protocol.REQUEST.size):
                command, size = protocol.REQUEST.unpack(header)
                if command == protocol.HELLO:
                    requests.read(size)
                    answer: bytes | None = protocol.greeting()
                else:
                    answer = self._ask(command, header, size, requests)
                if answer is not None:
                    client.sendall(protocol.SIZE.pack(len(answer)) + answer)

    def _ask(self, command: int, header: bytes, size: int, requests: IO[bytes]) -> bytes | None:
        """Pass a request on; its answer, if there is one."""
        part = requests.read(min(size, _CHUNK))
        self._send(header + part)
        while size := size - len(part):
            if not (part := requests.read(min(size, _CHUNK))):
                raise ConnectionAbortedError  # by llama.cpp
            self._send(part)
        answer = protocol.stand_in(command, part)
        if answer is not None and self.lost is None:
            try:
                return self._receive(len(answer))
            except OSError as error:
                self._lose(error)
        return answer

    def _send(self, data: bytes) -> None:
        if self.lost is None:
            try:
                self._connection.sendall(data)
            except OSError as error:
                self._lose(error)

    def _receive(self, size: int) -> bytes:
        """An answer of `size` bytes. Raises OSError: there is none."""
        header = self._read(protocol.SIZE.size)
        if header != protocol.SIZE.pack(size):
            raise OSError(0, "it gave another answer than was asked for")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionResetError
        return data

    def _lose(self, error: OSError) -> None:
        broken = isinstance(error, ConnectionError)
        self.lost = "the connection broke" if broken else error.strerror or str(error)


def _connect(server: Server) -> socket.socket:
    try:
        connection = socket.create_connection((server.host, server.port), _PATIENCE)
    except (OSError, UnicodeError) as error:  # a name may be none
        why = getattr(error, "strerror", None) or error
        raise RemoteError(
            f"cannot reach {server} ({why}): is llama.cpp's RPC server running there?"
        ) from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_KEEPALIVE, "TCP_USER_TIMEOUT": _UNACKNOWLEDGED}.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection
