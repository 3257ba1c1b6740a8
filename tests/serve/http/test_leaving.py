"""Clients that go away, and a server that ends: nothing goes on that nobody waits for."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from live_server import running
from sse import chunks

from spec_cpu.errors import UsageError
from spec_cpu.serve.http.server import address, listen
from spec_cpu.serve.http.service import Service
from spec_cpu.serve.http.settings import HttpSettings

PATIENCE = 600.0  # seconds, after which it hangs
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


def asked(path: str, **given: Any) -> bytes:
    said: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
        "/v1/completions": {"prompt": "Once"},
        "/v1/responses": {"input": "Hi"},
    }[path]
    return json.dumps({**said, **given}).encode()


def connected(url: str) -> closing[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE))


@contextmanager
def post(url: str, path: str, **given: Any) -> Iterator[http.client.HTTPConnection]:
    """A connection over which it was asked."""
    with connected(url) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, asked(path, **given), headers)
        yield connection


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("path", PATHS)
def test_an_answer_ends_with_its_client(
    live: str, engine: FakeEngine, path: str, streaming: bool
) -> None:
    engine.patient = True
    engine.go.release()
    with post(live, path, stream=streaming) as connection:
        if streaming:
            assert connection.getresponse().readline()
        else:
            assert engine.begun.wait(PATIENCE)
    assert engine.settled.wait(PATIENCE)
    assert engine.cancelled == 1
    engine.patient = False
    with post(live, path) as connection:
        assert connection.getresponse().status == 200


def test_one_that_waits_in_the_queue_ends_too(live: str, engine: FakeEngine) -> None:
    engine.patient = True
    with post(live, PATHS[0], stream=True) as first:
        answer = first.getresponse()
        with post(live, PATHS[0], stream=True) as second:
            assert second.getresponse().headers["x-queue-place"] == "1"
        engine.patient = False
        assert b"[DONE]" in answer.read()
    assert engine.settled.wait(PATIENCE)
    assert engine.cancelled == 1


def test_an_address_that_is_in_use() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}"):
            listen("127.0.0.1", port)
    with pytest.raises(UsageError, match="no-such-host"):
        listen("no-such-host.invalid", 0)


def test_the_address_of_a_server() -> None:
    with listen("127.0.0.1", 0) as found:
        assert address(found) == f"http://127.0.0.1:{found.getsockname()[1]}"


# The end of the server, as a process of its own that signals can be sent to


PROGRAM = """
import sys
from pathlib import Path
from fake_engine import FakeEngine
from spec_cpu.llama.model import Model
from spec_cpu.serve.http.server import address, listen, serve
from spec_cpu.serve.http.service import Service
from spec_cpu.serve.http.settings import HttpSettings

path, grace = Path(sys.argv[1]), float(sys.argv[2])
with Model(path) as model, listen("127.0.0.1", 0) as listening:
    engine = FakeEngine(model, patient=True)
    engine.go.release()
    print(address(listening), flush=True)
    notify = lambda text: print(text, flush=True)
    in_order = serve(Service(engine, HttpSettings(name="m")), listening, grace, notify)
    print(f"in order: {in_order}, cancelled: {engine.cancelled}, graces: {engine.graces}")
"""


def begun(answer: http.client.HTTPResponse) -> bool:
    """Read on to the first text of a stream: its very first chunk comes from before the engine."""
    return any(b'"content":""' not in line for line in iter(answer.readline, b"") if line.strip())


@contextmanager
def served(path: Path, grace: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", PROGRAM, str(path), str(grace)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_it_ends_at_once_where_nothing_is_under_way(served_path: Path) -> None:
    with served(served_path, 100.0) as (process, url), connected(url) as idle:
        idle.request("GET", "/health")
        assert idle.getresponse().read()
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert out == "in order: True, cancelled: 0, graces: [100.0, 0.0]\n"
    assert process.returncode == 0


def test_answers_end_in_order_within_their_grace(served_path: Path) -> None:
    with served(served_path, 0.2) as (process, url), post(url, PATHS[0], stream=True) as asked:
        answer = asked.getresponse()
        assert begun(answer)
        process.send_signal(signal.SIGINT)
        found = chunks(answer.read().decode().lstrip())
        out, _ = process.communicate(timeout=PATIENCE)
    assert found[-1]["choices"][0]["finish_reason"] == "length"
    assert out.startswith("ending: answers have 0.2 s")
    assert out.endswith("in order: True, cancelled: 1, graces: [0.2, 0.0]\n")


def test_a_second_ctrl_c_ends_them_at_once(served_path: Path) -> None:
    with served(served_path, 1000.0) as (process, url), post(url, PATHS[0], stream=True) as asked:
        assert begun(asked.getresponse())
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ending: answers have 1000 s")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert "in order: False, cancelled: 1" in out
    assert process.returncode == 0


def test_nothing_is_taken_while_it_ends(engine: FakeEngine) -> None:
    service = Service(engine, HttpSettings(name="tiny"))
    with running(service) as url:
        engine.close()
        with post(url, PATHS[0]) as connection:
            assert connection.getresponse().status == 400  # the engine was closed by somebody else
        service.closing = True
        with post(url, PATHS[0]) as connection:
            assert connection.getresponse().status == 503


def test_a_client_that_leaves_in_the_midst_of_its_request_is_no_fault(
    live: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(live) as connection:
        connection.putrequest("POST", PATHS[0])
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "500")
        connection.endheaders(b"{")
    with connected(live) as connection:  # the one that left was seen to before this is answered
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
    assert not [one for one in caplog.records if one.exc_info]
