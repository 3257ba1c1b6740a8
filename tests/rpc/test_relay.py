"""Between llama.cpp and a server: all is passed on, and nothing breaks when the server is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from fake_server import FakeServer, fake_server
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.errors import RemoteError
from spec_cpu.rpc import protocol, relay
from spec_cpu.rpc.relay import Relay
from spec_cpu.rpc.servers import Server

Request = tuple[int, bytes]

GET_TENSOR, RECOMPUTE = 8, 16
COMMANDS = [command for command in range(18) if command not in (GET_TENSOR, protocol.HELLO)]
REQUESTS = st.tuples(st.sampled_from(COMMANDS), st.binary(max_size=40)) | st.tuples(
    st.just(GET_TENSOR), st.integers(0, 300).map(protocol.SIZE.pack)
)
LISTS = st.lists(REQUESTS, max_size=8)


class Client:
    """llama.cpp's end of a relay."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = connection.makefile("rb")
        connection.sendall(protocol.hello())
        assert self.read(len(protocol.greeting())) == protocol.greeting()

    def read(self, size: int) -> bytes:
        assert self._answers.read(protocol.SIZE.size) == protocol.SIZE.pack(size)
        answer = self._answers.read(size)
        assert len(answer) == size
        return answer

    def ask(self, command: int, body: bytes) -> bytes | None:
        # As llama.cpp does: the command, the size and the body apart.
        header = protocol.REQUEST.pack(command, len(body))
        for part in (header[:1], header[1:], body):
            self._connection.sendall(part)
        form = protocol.stand_in(command, body)
        return None if form is None else self.read(len(form))


@contextmanager
def client(relay: Relay) -> Iterator[Client]:
    host, port = relay.endpoint.split(":")
    with socket.create_connection((host, int(port))) as connection:
        made = Client(connection)
        with made._answers:
            yield made


def talk(relay: Relay, requests: Sequence[Request]) -> list[bytes | None]:
    with client(relay) as asking:
        return [asking.ask(*request) for request in requests]


@settings(max_examples=40)
@given(LISTS, LISTS)
def test_requests_and_answers_are_passed_on(first: list[Request], then: list[Request]) -> None:
    with fake_server() as server, closing(Relay(server.server)) as relay:
        for requests in (first, then):  # one connection to the server, whatever llama.cpp does
            assert talk(relay, requests) == [FakeServer.answer(*each) for each in requests]
        assert relay.lost is None
        relay.close()
        server.join()
        assert server.asked == first + then


def test_what_is_large_is_passed_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_CHUNK", 64)
    bodies = [bytes(range(256))[:size] for size in (63, 64, 65, 128, 200)]
    with fake_server() as server:
        with closing(Relay(server.server)) as made:
            talk(made, [(6, body) for body in bodies])
        server.join()
        assert server.asked == [(6, body) for body in bodies]


@settings(max_examples=60)
@given(st.lists(REQUESTS, min_size=1, max_size=6), st.integers(0, 200))
def test_a_lost_server_breaks_nothing(requests: list[Request], breaks_at: int) -> None:
    """Wherever it broke off, each request gets an answer of its form, and `lost` says why."""
    with fake_server(breaks_at=breaks_at) as server, closing(Relay(server.server)) as relay:
        with client(relay) as asking:
            sent = 0
            for command, body in requests:
                answer = asking.ask(command, body)
                sent += 0 if answer is None else protocol.SIZE.size + len(answer)
                if sent > breaks_at:
                    assert relay.lost == "the connection broke"
                if relay.lost:
                    assert answer == protocol.stand_in(command, body)
                else:
                    assert answer == FakeServer.answer(command, body)
        assert (sent > breaks_at) <= (relay.lost is not None)
        before = relay.lost
        assert talk(relay, requests) is not None  # and llama.cpp may come again
        assert before is None or relay.lost == before


def test_an_answer_of_another_size_is_none() -> None:
    with fake_server() as server:
        server.answer = lambda *_: b"12345"  # type: ignore[method-assign]
        with closing(Relay(server.server)) as relay:
            assert talk(relay, [(1, b"")]) == [protocol.stand_in(1, b"")]
            assert relay.lost == "it gave another answer than was asked for"


@pytest.mark.parametrize("version", [(6, 9), (8, 0), (7, 1)])
def test_a_server_of_another_version_is_refused(version: tuple[int, int]) -> None:
    named = f"{version[0]}.{version[1]} of llama.cpp's RPC protocol, and here it is 7.0"
    with (
        fake_server(protocol.greeting(*version)) as server,
        pytest.raises(RemoteError, match=named),
    ):
        Relay(server.server)


def test_a_server_of_another_patch_is_taken() -> None:
    with fake_server(protocol.greeting(patch=9)) as server, closing(Relay(server.server)):
        pass


def test_another_program_is_refused() -> None:
    said = "is no RPC server of this version"
    with fake_server(b"HTTP/1.1 400") as server, pytest.raises(RemoteError, match=said):
        Relay(server.server)


def test_one_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_PATIENCE", 0.01)
    said = "does not answer: an RPC server serves one program at a time"
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(RemoteError, match=said),
    ):
        Relay(Server(*listening.getsockname()))


def test_one_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        server = Server(*gone.getsockname())
    with pytest.raises(RemoteError, match=f"cannot reach {server} .*running there"):
        Relay(server)
    with pytest.raises(RemoteError, match=r"cannot reach \.\.:1 "):
        Relay(Server("..", 1))
