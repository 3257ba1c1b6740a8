"""/v1/chat/completions, whole and bit by bit."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from fake_engine import FakeEngine
from serving import Serve
from sse import chunks
from starlette.testclient import TestClient

from spec_cpu.errors import ModelError

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
SAID = "Hello there, how are you?"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def ask(client: TestClient, **given: Any) -> Any:
    done = client.post(PATH, json={"messages": HI, **given})
    assert done.status_code == 200, done.text
    return done.json()


def stream(client: TestClient, **given: Any) -> list[Any]:
    done = client.post(PATH, json={"messages": HI, "stream": True, **given})
    assert done.status_code == 200, done.text
    assert done.headers["content-type"].startswith("text/event-stream")
    return chunks(done.text)


def deltas(found: list[Any], name: str, choice: int = 0) -> list[Any]:
    """What the stream has of one field."""
    choices = (one["choices"][0] for one in found if one["choices"])
    return [
        one["delta"][name]
        for one in choices
        if one["index"] == choice and one["delta"].get(name) is not None
    ]


def test_an_answer(client: TestClient, engine: FakeEngine) -> None:
    done = client.post(PATH, json={"messages": HI, "model": "whatever", "user": "me"})
    found = done.json()
    assert found["object"] == "chat.completion"
    assert found["model"] == "tiny"
    (choice,) = found["choices"]
    assert choice["message"]["content"] == SAID
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    assert done.headers["x-queue-place"] == "0"
    usage, n = found["usage"], len(engine.asked[0].tokens)
    assert usage["prompt_tokens"] == n
    assert usage["total_tokens"] == n + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 1}
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 0
    assert details["rejected_prediction_tokens"] > 0


def test_a_stream_says_the_same_bit_by_bit(client: TestClient) -> None:
    found = stream(client)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    parts = deltas(found, "content")
    assert "".join(parts) == SAID
    assert len(parts) > 3
    assert [one["choices"][0]["finish_reason"] for one in found] == [None] * (len(found) - 1) + [
        "stop"
    ]
    assert {one["id"] for one in found} == {found[0]["id"]}
    assert "usage" not in found[-1]


def test_usage_in_a_stream_is_what_it_is_at_once(client: TestClient) -> None:
    found = stream(client, stream_options={"include_usage": True})
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == ask(client)["usage"]
    assert [one["usage"] for one in found[:-1]] == [None] * (len(found) - 1)


@pytest.mark.parametrize("streaming", [False, True])
def test_several_answers(client: TestClient, engine: FakeEngine, streaming: bool) -> None:
    engine.say = lambda request: f"number {request.seed}"
    if streaming:
        found = stream(client, n=3, seed=7)
        texts = ["".join(deltas(found, "content", i)) for i in range(3)]
    else:
        done = ask(client, n=3, seed=7)
        assert [one["index"] for one in done["choices"]] == [0, 1, 2]
        texts = [one["message"]["content"] for one in done["choices"]]
        assert done["usage"]["prompt_tokens"] == len(engine.asked[0].tokens)
    assert texts == ["number 7", "number 8", "number 9"]


def test_parameters_reach_the_engine(client: TestClient, engine: FakeEngine) -> None:
    ask(
        client,
        temperature=0.3,
        top_p=0.5,
        top_k=7,
        min_p=0.01,
        repeat_penalty=1.2,
        repeat_last_n=9,
        frequency_penalty=0.25,
        presence_penalty=-1,
        logit_bias={"5": -100, "6": 2.5},
        seed=11,
        stop="how",
        max_completion_tokens=40,
        max_tokens=50,
        ignore_eos=True,
    )
    asked = engine.asked[0]
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.3, 0.5, 7)
    assert (sampling.min_p, sampling.repeat_penalty, sampling.penalty_last_n) == (0.01, 1.2, 9)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.25, -1)
    assert sampling.logit_bias == {5: -100, 6: 2.5}
    assert (asked.seed, list(asked.stops), asked.max_tokens) == (11, ["how"], 40)
    assert asked.ignore_eos


def test_nothing_given_is_the_servers_own(serve: Serve, engine: FakeEngine) -> None:
    from spec_cpu.sampling.pipeline import SamplingParams

    own = SamplingParams(temperature=0.1, top_k=3)
    client = serve(sampling=own, max_tokens=6)
    ask(client, temperature=None, stop=None, max_tokens=None, n=None, stream=None, seed=None)
    ask(client, max_tokens=100, seed=-1)
    ask(client, max_tokens=-1)
    ask(client, max_tokens=2)
    assert [one.sampling for one in engine.asked] == [own] * 4
    assert [one.seed for one in engine.asked] == [None] * 4
    assert [one.max_tokens for one in engine.asked] == [6, 6, 6, 2]


@pytest.mark.parametrize("cold", [{"temperature": 0}, {"temperature": 1e-9}, {"top_p": 0}])
def test_the_likeliest_token_is_asked_for_in_several_ways(
    client: TestClient, engine: FakeEngine, cold: dict[str, float]
) -> None:
    ask(client, **cold)
    assert engine.asked[0].sampling.greedy


def test_a_stop_string_ends_the_answer_and_is_not_shown(client: TestClient) -> None:
    for stop in ("how", ["?", "how"]):
        assert ask(client, stop=stop)["choices"][0]["message"]["content"] == "Hello there, "
        assert "".join(deltas(stream(client, stop=stop), "content")) == "Hello there, "


def test_an_answer_that_is_cut_has_a_length(client: TestClient) -> None:
    assert ask(client, max_tokens=4)["choices"][0]["finish_reason"] == "length"
    assert stream(client, max_tokens=4)[-1]["choices"][0]["finish_reason"] == "length"


def test_log_probabilities(client: TestClient) -> None:
    content = ask(client, logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert "".join(one["token"] for one in content) == SAID
    for one in content:
        assert bytes(one["bytes"]).decode() == one["token"]
        assert one["logprob"] == -0.1
        assert [other["logprob"] for other in one["top_logprobs"]] == [-0.1, -2.5, -9999.0]
    streamed = [
        token
        for chunk in stream(client, logprobs=True, top_logprobs=3)
        if chunk["choices"][0]["logprobs"]
        for token in chunk["choices"][0]["logprobs"]["content"]
    ]
    assert streamed == content
    assert ask(client, logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert math.isclose(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"])


def test_a_prediction_is_a_reference(client: TestClient, engine: FakeEngine) -> None:
    ask(client, prediction={"type": "content", "content": "how are <|im_end|> you"})
    ask(
        client,
        prediction={"type": "content", "content": [{"type": "text", "text": "how are"}]},
    )
    vocab = engine.model.vocab
    (long,), (short,) = engine.asked[0].references, engine.asked[1].references
    assert vocab.controls["<|im_end|>"] not in long
    assert list(short) == vocab.tokenize("how are", add_special=False)


def test_thoughts_are_apart(client: TestClient, engine: FakeEngine) -> None:
    engine.say = "<think>\nWell.\n\nYes!\n</think>\n\nGood."
    found = ask(client)
    message = found["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Well.\n\nYes!", "Good.")
    assert found["usage"]["completion_tokens_details"]["reasoning_tokens"] > 5
    parts = stream(client)
    assert "".join(deltas(parts, "reasoning_content")) == "Well.\n\nYes!"
    assert "".join(deltas(parts, "content")) == "Good."


def test_a_call(client: TestClient, engine: FakeEngine) -> None:
    engine.say = "Let me see. " + CALL
    (choice,) = ask(client, tools=[WEATHER])["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert call["id"]


def test_a_call_in_a_stream(client: TestClient, engine: FakeEngine) -> None:
    engine.say = CALL + CALL
    found = stream(client, tools=[WEATHER], tool_choice="auto")
    parts = [part for one in deltas(found, "tool_calls") for part in one]
    for index in (0, 1):
        first, *rest = [part for part in parts if part["index"] == index]
        assert first["function"] == {"name": "weather", "arguments": ""}
        assert (bool(first["id"]), first["type"]) == (True, "function")
        assert len(rest) > 1
        arguments = "".join(part["function"]["arguments"] for part in rest)
        assert json.loads(arguments) == {"city": "Rome"}
    assert deltas(found, "content") == [""]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_without_functions_a_call_is_text(client: TestClient, engine: FakeEngine) -> None:
    engine.say = CALL
    for given in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        assert ask(client, **given)["choices"][0]["message"]["content"] == CALL


def test_a_call_can_be_asked_for(client: TestClient, engine: FakeEngine) -> None:
    engine.say = '{"city": "Rome"}}</tool_call>'
    choice = {"type": "function", "function": {"name": "weather"}}
    (named,) = ask(client, tools=[WEATHER], tool_choice=choice)["choices"]
    engine.say = 'weather", "arguments": {"city": "Rome"}}</tool_call>'
    (any_of_them,) = ask(client, tools=[WEATHER], tool_choice="required")["choices"]
    for found in (named, any_of_them):
        (call,) = found["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}


def test_what_a_call_gave_is_read(client: TestClient, engine: FakeEngine) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
    }
    turns = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
    ]
    ask(client, messages=turns, tools=[WEATHER])
    text = "".join(engine.model.vocab.piece(i).decode() for i in engine.asked[0].tokens)
    assert '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>' in text
    assert "tool\nSunny." in text
    assert "<tools>" in text


def test_ours_names_every_token(client: TestClient, engine: FakeEngine) -> None:
    found = stream(client, spec_cpu={"tokens": True}, stop="are")
    told = [one["spec_cpu"] for one in found if "spec_cpu" in one]
    assert len(told) == len(found) - 1  # but for the one with the role
    tokens = [token for one in told for token in one["tokens"]]
    shown = "".join(deltas(found, "content"))
    assert "".join(token["text"] for token in tokens) == shown == "Hello there, how "
    assert {token["origin"] for token in tokens} == {"accepted", "bonus"}
    assert tokens[0]["sources"] == ["ngram"]
    seven = engine.model.vocab.piece(7) or engine.model.vocab.text(7)
    assert tokens[0]["alternatives"] == [[seven.decode(), 0.25]]
    assert {one["id"] for one in told} == {0}  # as among the shares of a pass
    assert told[0]["reading"] == {"done": 0, "total": len(engine.asked[0].tokens)}
    summary = told[-1]["summary"]
    assert summary["drafted"] == sum(one["drafted"] for one in told)
    assert summary["accepted"] == sum(one["accepted"] for one in told)
    assert summary["by_source"]["ngram"]["drafted"] == summary["drafted"]
    assert "spec_cpu" not in stream(client)[-1]


@pytest.mark.parametrize("streaming", [False, True])
def test_an_answer_that_fails(client: TestClient, engine: FakeEngine, streaming: bool) -> None:
    engine.fails = ModelError("the model broke")
    done = client.post(PATH, json={"messages": HI, "stream": streaming})
    if streaming:
        *_, last = chunks(done.text, done="error")
        assert "".join(deltas(chunks(done.text, done="error")[:-1], "content"))
    else:
        assert done.status_code == 500
        last = done.json()
    assert last["error"]["message"] == "the model broke"
    assert last["error"]["type"] == "server_error"
