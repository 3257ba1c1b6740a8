"""Who may ask, and what a page of somebody else's cannot do."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fake_engine import FakeEngine
from serving import Serve
from starlette.testclient import TestClient

from spec_cpu.errors import UsageError
from spec_cpu.serve.http.app import PAGE
from spec_cpu.serve.http.settings import HttpSettings

TEXT = "/v1/completions"
ASKED = {"prompt": "a secret"}
CLOSED = ("/v1/models", "/metrics", "/props", "/spec-cpu/state")


def test_another_address_needs_a_key() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(UsageError, match="api_key"):
            HttpSettings(name="m", host=host)
        HttpSettings(name="m", host=host, api_keys=["k"])
    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        HttpSettings(name="m", host=host)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer key",
        "Basic key-1",
        "key-1",
        "Bearer key-1 x",
        "Bearer key-12",
        "Bearer KEY-1",
    ],
)
def test_without_a_key_nothing_is_answered(
    serve: Serve, engine: FakeEngine, header: str | None
) -> None:
    client = serve(api_keys=["key-1", "key-2"])
    headers = {} if header is None else {"authorization": header}
    for done in (
        client.post(TEXT, json=ASKED, headers=headers),
        *(client.get(path, headers=headers) for path in CLOSED),
    ):
        assert (done.status_code, done.json()["error"]["code"]) == (401, "invalid_api_key")
        assert done.headers["www-authenticate"] == "Bearer"
    assert engine.asked == []
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("header", ["Bearer key-1", "bearer key-2", "Bearer  key-2 "])
def test_each_of_the_keys_will_do(serve: Serve, header: str) -> None:
    client = serve(api_keys=["key-1", "key-2"], headers={"authorization": header})
    assert client.post(TEXT, json=ASKED).status_code == 200
    assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8080", True),
        ("evil.example", False),
        ("evil.example:8080", False),
        ("", False),
        ("0.0.0.0", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
    ],
)
def test_a_name_that_was_made_to_point_here(
    client: TestClient, serve: Serve, host: str, passes: bool
) -> None:
    headers = {"host": host}
    for done in (
        client.post(TEXT, json=ASKED, headers=headers),
        client.get("/spec-cpu/state", headers=headers),
    ):
        assert done.status_code == (200 if passes else 403)
    # A page elsewhere does not know the key: then any name will do, for servers before this one.
    named = serve(api_keys=["k"], headers={**headers, "authorization": "Bearer k"})
    assert named.get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/jsonp",
    ],
)
def test_a_form_is_not_read(client: TestClient, engine: FakeEngine, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    done = client.post(TEXT, content=b'{"prompt": "a"}', headers=headers)
    assert done.status_code == 415
    assert engine.asked == []
    json = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post(TEXT, content=b'{"prompt": "a"}', headers=json).status_code == 200


def test_the_page_needs_no_key_and_loads_nothing_from_elsewhere(serve: Serve) -> None:
    client = serve(api_keys=["k"])
    for name in ("", *(file.name for file in PAGE.iterdir() if file.is_file())):
        done = client.get(f"/{name}")
        assert done.status_code == 200, name
        assert "default-src 'none'" in done.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in done.headers["content-security-policy"]
        assert done.headers["cache-control"] == "no-cache"
    assert client.get("/../server.py").status_code == 401
    assert client.get("/no-such-file").status_code == 401


def preflight(client: TestClient, origin: str) -> Any:
    return client.options(
        TEXT,
        headers={
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,authorization",
        },
    )


def test_no_other_page_may_ask_unless_it_is_named(client: TestClient, serve: Serve) -> None:
    allowed = "access-control-allow-origin"
    origin = "https://page.example"
    assert allowed not in preflight(client, origin).headers
    assert allowed not in client.post(TEXT, json=ASKED, headers={"origin": origin}).headers
    named = serve(cors_origins=[origin], api_keys=["k"])
    assert preflight(named, origin).headers[allowed] == origin
    assert preflight(named, origin).status_code == 200
    headers = {"origin": origin, "authorization": "Bearer k"}
    answered = named.post(TEXT, json=ASKED, headers=headers)
    assert answered.headers[allowed] == origin
    assert "x-queue-place" in answered.headers["access-control-expose-headers"]
    refused = named.post(TEXT, json=ASKED, headers={"origin": origin})
    assert (refused.status_code, refused.headers[allowed]) == (401, origin)
    other = "https://other.example"
    assert allowed not in preflight(named, other).headers
    assert allowed not in named.post(TEXT, json=ASKED, headers={**headers, "origin": other}).headers


@pytest.mark.parametrize("told", [False, True])
def test_prompts_are_in_the_log_only_if_asked(
    serve: Serve, caplog: pytest.LogCaptureFixture, told: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    client = serve(log_prompts=told)
    client.post(TEXT, json=ASKED)
    client.post(TEXT, json={**ASKED, "temperature": -1})
    client.get("/v1/models/a%20secret")
    assert "/v1/completions" in caplog.text
    assert ("a secret" in caplog.text) == told
    assert "Hello there" not in caplog.text or told


def test_a_bug_tells_clients_nothing(
    client: TestClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise ZeroDivisionError("inner workings")

    monkeypatch.setattr(engine, "submit", broken)
    done = client.post(TEXT, json=ASKED)
    assert (done.status_code, "inner" in done.text) == (500, False)
    assert done.json()["error"]["type"] == "server_error"


def test_every_answer_has_a_name(client: TestClient) -> None:
    names = {client.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(names) == 3
