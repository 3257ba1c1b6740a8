"""Requests that make no sense, or are too much: OpenAI's error object, and no work for it."""

from __future__ import annotations

from typing import Any

import pytest
from fake_engine import CONTEXT, FakeEngine
from serving import TEMPLATE, Serve
from starlette.testclient import TestClient

from spec_cpu.serve.engine.engine import Handle
from spec_cpu.serve.engine.request import Deliver, Request

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}

WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        "messages[0].content[0]",
    ),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": "0.5"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"top_k": 2.5}, "top_k"),
    ({"repeat_last_n": -2}, "repeat_last_n"),
    ({"frequency_penalty": 1e10}, "frequency_penalty"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"seed": -5}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"stop": 3}, "stop"),
    ({"stop": ""}, "stop"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -7}, "max_tokens"),
    ({"stream": "yes"}, "stream"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "code", "function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": 3}, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"prediction": {"type": "content"}}, "prediction.content"),
    ({"spec_cpu": {"tokens": "all"}}, "spec_cpu.tokens"),
]


@pytest.mark.parametrize(("given", "param"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_a_wrong_parameter_is_named(
    client: TestClient, engine: FakeEngine, given: dict[str, Any], param: str | None
) -> None:
    done = client.post(CHAT, json={"messages": HI, **given})
    error = done.json()["error"]
    assert (done.status_code, error["type"], error["param"]) == (
        400,
        "invalid_request_error",
        param,
    ), error
    assert error["message"]
    assert engine.asked == []


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": [[1], "a", 3]}, "prompt"),
        ({"prompt": [320000]}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
    ],
)
def test_a_wrong_completion(client: TestClient, given: dict[str, Any], param: str) -> None:
    done = client.post(TEXT, json=given)
    assert (done.status_code, done.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "3",
        '"a"',
        '{"prompt": "\\ud800"}',
        "ÿ",
        "[" * 10000,
        '{"prompt": "a", "temperature": 1e400}',
        '{"prompt": "a", "temperature": NaN}',
    ],
)
def test_what_is_no_json_object_or_no_number(client: TestClient, body: str) -> None:
    done = client.post(
        TEXT, content=body.encode("latin-1"), headers={"content-type": "application/json"}
    )
    assert done.status_code == 400
    assert done.json()["error"]["message"]


def test_unknown_parameters_are_ignored(client: TestClient) -> None:
    given = {"messages": HI, "user": "me", "store": True, "service_tier": "auto", "nonsense": {}}
    assert client.post(CHAT, json=given).status_code == 200


def test_no_such_path_and_no_such_method(client: TestClient) -> None:
    for done in (client.post("/v1/nothing", json={}), client.put(CHAT, json={})):
        assert done.status_code in (404, 405)
        assert done.json()["error"]["type"] == "invalid_request_error"


def test_a_template_without_a_place_for_functions(
    client: TestClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spec_cpu.llama.chat import ChatTemplate

    plain = ChatTemplate(TEMPLATE.replace("{% if tools %}", "{% if false %}"), bos="", eos="")
    monkeypatch.setattr(engine.model, "chat_template", plain)
    done = client.post(CHAT, json={"messages": HI, "tools": [TOOL]})
    assert (done.status_code, done.json()["error"]["param"]) == (400, "tools")
    off = client.post(CHAT, json={"messages": HI, "tools": [TOOL], "tool_choice": "none"})
    assert off.status_code == 200


def test_a_conversation_that_the_template_refuses(
    client: TestClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, and the template holds for the next one."""
    from spec_cpu.llama.chat import ChatTemplate

    source = "{% if messages | length > 1 %}{{ raise_exception('one at a time') }}{% endif %}ok"
    monkeypatch.setattr(engine.model, "chat_template", ChatTemplate(source, bos="", eos=""))
    done = client.post(CHAT, json={"messages": HI * 3})
    assert (done.status_code, "one at a time" in done.text) == (400, True)
    client.post(CHAT, json={"messages": HI})
    assert list(engine.asked[0].tokens) == engine.model.vocab.tokenize("ok")


# Too much


def test_a_prompt_that_is_too_long(serve: Serve, client: TestClient) -> None:
    long = {"prompt": "a b " * CONTEXT}
    for done in (client.post(TEXT, json=long), serve(max_prompt=5).post(TEXT, json=long)):
        assert done.status_code == 400
        assert done.json()["error"]["code"] == "context_length_exceeded"


def test_a_body_that_is_too_long(serve: Serve, engine: FakeEngine) -> None:
    client = serve(max_body=1000)
    assert client.post(TEXT, json={"prompt": "a" * 100}).status_code == 200
    done = client.post(TEXT, json={"prompt": "a" * 1000})
    assert (done.status_code, done.json()["error"]["type"]) == (413, "invalid_request_error")
    assert len(engine.asked) == 1


def test_a_full_queue(client: TestClient, engine: FakeEngine) -> None:
    """None of several answers is begun where there is no room for all."""
    engine.patient, engine.queue = True, 1
    done = client.post(TEXT, json={"prompt": "a", "n": 5})
    assert (done.status_code, done.headers["retry-after"]) == (503, "2")
    assert done.json()["error"]["type"] == "server_error"
    assert engine.settled.wait(10)
    assert engine.cancelled == 1


def test_a_place_in_the_queue(
    client: TestClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.patient = True
    submit = engine.submit
    submit(Request(tokens=[5]), lambda _: None)

    def submit_behind(request: Request, deliver: Deliver) -> Handle:
        handle = submit(request, deliver)
        engine.patient = False
        return handle

    monkeypatch.setattr(engine, "submit", submit_behind)
    places = [client.post(TEXT, json={"prompt": "a", "stream": i > 0}) for i in range(2)]
    assert [done.headers["x-queue-place"] for done in places] == ["1", "0"]


def test_an_answer_that_takes_too_long_is_cut(serve: Serve, engine: FakeEngine) -> None:
    engine.patient = True
    engine.go.release()
    found = serve(max_time=0.05).post(TEXT, json={"prompt": "a"}).json()
    (choice,) = found["choices"]
    assert choice["finish_reason"] == "length"
    assert "Hello there, how are you?".startswith(choice["text"])
    assert engine.cancelled == 1
