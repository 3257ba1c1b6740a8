"""/v1/responses: an answer as items, whole and as typed events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_engine import FakeEngine
from sse import chunks
from starlette.testclient import TestClient

from spec_cpu.errors import ModelError

PATH = "/v1/responses"
SAID = "Hello there, how are you?"
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'


def ask(client: TestClient, **given: Any) -> Any:
    done = client.post(PATH, json={"input": "Hi", **given})
    assert done.status_code == 200, done.text
    return done.json()


def stream(client: TestClient, **given: Any) -> list[Any]:
    done = client.post(PATH, json={"input": "Hi", "stream": True, **given})
    assert done.status_code == 200, done.text
    names = [line[7:] for line in done.text.splitlines() if line.startswith("event: ")]
    found = chunks(done.text, done="response")
    assert names == [one["type"] for one in found]
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    return found


def without_ids(value: Any) -> Any:
    """What does not differ from answer to answer."""
    if isinstance(value, dict):
        changing = ("id", "item_id", "call_id", "created_at")
        return {name: without_ids(one) for name, one in value.items() if name not in changing}
    return [without_ids(one) for one in value] if isinstance(value, list) else value


def test_an_answer(client: TestClient) -> None:
    found = ask(client, instructions="Be brief.", metadata={"a": "b"})
    assert (found["object"], found["status"], found["model"]) == ("response", "completed", "tiny")
    assert found["metadata"] == {"a": "b"}
    (item,) = found["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [
        {"type": "output_text", "text": SAID, "annotations": [], "logprobs": []}
    ]
    usage = found["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 1}


SAYS = {
    "text": SAID,
    "thoughts": "<think>\nWell.\n</think>\n\nYes.",
    "calls": f"Let me see.\n{CALL}{CALL}",
    "nothing": "",
}


@pytest.mark.parametrize("name", SAYS)
def test_the_events_of_a_stream_build_what_is_said_at_once(
    client: TestClient, engine: FakeEngine, name: str
) -> None:
    engine.say = SAYS[name]
    found = stream(client, tools=[WEATHER])
    assert [one["type"] for one in found[:2]] == ["response.created", "response.in_progress"]
    assert found[-1]["type"] == "response.completed"
    items: list[Any] = []
    for event in found[2:-1]:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(items)
                items.append(event["item"])
            case "content_part.added":
                items[-1]["content"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta":
                items[-1]["content"][event["content_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                items[-1]["arguments"] += event["delta"]
            case "function_call_arguments.done":
                assert items[-1]["arguments"] == event["arguments"]
            case "output_text.done" | "reasoning_text.done":
                assert items[-1]["content"][event["content_index"]]["text"] == event["text"]
            case "content_part.done":
                assert items[-1]["content"][event["content_index"]] == event["part"]
            case "output_item.done":
                items[-1]["status"] = "completed"
                assert items[-1] == event["item"]
            case other:
                raise AssertionError(other)
        if "item_id" in event:
            assert event["item_id"] == items[-1]["id"]
    assert found[-1]["response"]["output"] == items
    assert without_ids(found[-1]["response"]) == without_ids(ask(client, tools=[WEATHER]))


def test_thoughts_and_calls_are_items(client: TestClient, engine: FakeEngine) -> None:
    engine.say = SAYS["thoughts"]
    thoughts, message = ask(client)["output"]
    assert thoughts["content"] == [{"type": "reasoning_text", "text": "Well."}]
    assert message["content"][0]["text"] == "Yes."
    engine.say = CALL
    (call,) = ask(client, tools=[WEATHER])["output"]
    assert (call["type"], call["name"], call["status"]) == ("function_call", "weather", "completed")
    assert json.loads(call["arguments"]) == {"city": "Rome"}


def test_a_conversation_is_read(client: TestClient, engine: FakeEngine) -> None:
    ask(
        client,
        instructions="Be brief.",
        tools=[WEATHER],
        input=[
            {"role": "developer", "content": "And kind."},
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
            },
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "weather",
                "arguments": '{"city": "Rome"}',
            },
            {"type": "function_call_output", "call_id": "c1", "output": "Sunny."},
        ],
    )
    vocab = engine.model.vocab
    text = "".join((vocab.piece(i) or vocab.text(i)).decode() for i in engine.asked[0].tokens)
    text = text.replace("> ", ">")  # SentencePiece's own, behind a control token
    _, read = text.split("</tools><|im_end|>\n")
    assert read == (
        "<|im_start|>system\nBe brief.\n\nAnd kind.<|im_end|>\n"
        "<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\nWait."
        '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nSunny.<|im_end|>\n"
        "<|im_start|>assistant"
    )


def test_an_answer_that_is_cut_is_incomplete(client: TestClient) -> None:
    for found in (
        ask(client, max_output_tokens=4),
        stream(client, max_output_tokens=4)[-1]["response"],
    ):
        assert found["status"] == "incomplete"
        assert found["incomplete_details"] == {"reason": "max_output_tokens"}
        assert found["output"][-1]["status"] == "incomplete"


def test_log_probabilities(client: TestClient) -> None:
    include = ["message.output_text.logprobs"]
    (item,) = ask(client, include=include, top_logprobs=2)["output"]
    found = item["content"][0]["logprobs"]
    assert "".join(one["token"] for one in found) == SAID
    assert len(found[0]["top_logprobs"]) == 2
    events = stream(client, include=include, top_logprobs=2)
    deltas = [one for one in events if one["type"] == "response.output_text.delta"]
    assert [prob for one in deltas for prob in one["logprobs"]] == found


def test_an_answer_that_fails(client: TestClient, engine: FakeEngine) -> None:
    engine.fails = ModelError("the model broke")
    last = stream(client)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "the model broke"}
    assert client.post(PATH, json={"input": "Hi"}).status_code == 500


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "f"}]}, "input[0]"),
        ({"input": [{"type": "reasoning"}]}, "input"),
    ],
)
def test_what_is_not_offered_is_said(client: TestClient, given: dict[str, Any], param: str) -> None:
    done = client.post(PATH, json={"input": "Hi", **given})
    assert done.status_code == 400
    assert done.json()["error"]["param"] == param
