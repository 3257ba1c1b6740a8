"""An RPC server that holds nothing: it answers as it is told, or breaks off."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from threading import Thread

from spec_cpu.rpc import protocol
from spec_cpu.rpc.servers import Server


class FakeServer:
    """Serves one connection, and keeps what it was asked.

    Attributes:
        asked: command and body of each request after the first.
        breaks_at: bytes of answers (sizes included) after which it breaks off; None: never.
    """

    def __init__(self, greeting: bytes, *, breaks_at: int | None = None) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self.breaks_at = breaks_at
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.server = Server(*self._listener.getsockname())
        self._thread = Thread(target=self._serve)
        self._thread.start()

    @staticmethod
    def answer(command: int, body: bytes) -> bytes | None:
        """What it answers: the bytes 1, 2, 3 ..., as many as belong there."""
        form = protocol.stand_in(command, body)
        return None if form is None else bytes(i % 251 + 1 for i in range(len(form)))

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection, connection.makefile("rb") as requests:
            left = self.breaks_at
            while len(header := requests.read(protocol.REQUEST.size)) == protocol.REQUEST.size:
                command, size = protocol.REQUEST.unpack(header)
                body = requests.read(size)
                if command == protocol.HELLO:
                    connection.sendall(protocol.SIZE.pack(len(self._greeting)) + self._greeting)
                    continue
                self.asked.append((command, body))
                answer = self.answer(command, body)
                if answer is None:
                    continue
                sent = protocol.SIZE.pack(len(answer)) + answer
                connection.sendall(sent[:left])
                if left is not None:
                    left -= len(sent)
                    if left < 0:
                        return

    def join(self) -> None:
        """Wait until its client has gone away."""
        self._thread.join()


@contextlib.contextmanager
def fake_server(greeting: bytes | None = None, **how: int) -> Iterator[FakeServer]:
    """A server of this version, or with another greeting; it must be left by its client."""
    server = FakeServer(protocol.greeting() if greeting is None else greeting, **how)
    try:
        yield server
    finally:
        server.join()
