"""/v1/completions: texts that go on."""

from __future__ import annotations

from typing import Any

import pytest
from fake_engine import FakeEngine
from sse import chunks
from starlette.testclient import TestClient

PATH = "/v1/completions"
SAID = "Hello there, how are you?"


def ask(client: TestClient, **given: Any) -> Any:
    done = client.post(PATH, json={"prompt": "Once", **given})
    assert done.status_code == 200, done.text
    return done.json()


def stream(client: TestClient, **given: Any) -> list[Any]:
    done = client.post(PATH, json={"prompt": "Once", "stream": True, **given})
    assert done.status_code == 200, done.text
    return chunks(done.text)


def text(found: list[Any], index: int = 0) -> str:
    choices = (one["choices"][0] for one in found if one["choices"])
    return "".join(one["text"] for one in choices if one["index"] == index)


def test_a_text_goes_on_as_it_is(client: TestClient, engine: FakeEngine) -> None:
    found = ask(client, prompt="<|im_start|>user")
    assert found["object"] == "text_completion"
    assert found["choices"][0] == {
        "index": 0,
        "text": SAID,
        "logprobs": None,
        "finish_reason": "stop",
    }
    vocab = engine.model.vocab
    assert list(engine.asked[0].tokens) == vocab.tokenize("<|im_start|>user")
    assert vocab.controls["<|im_start|>"] in engine.asked[0].tokens


def test_a_stream_says_the_same(client: TestClient) -> None:
    found = stream(client, stream_options={"include_usage": True})
    assert text(found) == SAID
    assert found[-2]["choices"][0]["finish_reason"] == "stop"
    assert (found[-1]["choices"], found[-1]["usage"]) == ([], ask(client)["usage"])


def test_nothing_is_split_off(client: TestClient, engine: FakeEngine) -> None:
    engine.say = "<think>\nWell.\n</think>\nYes."
    said = ask(client)["choices"][0]["text"]
    assert said == text(stream(client))
    assert said.split() == ["Well.", "Yes."]  # control tokens have no text


@pytest.mark.parametrize("prompt", [["a b", "c"], [[5, 6], [7]]])
def test_several_prompts_and_answers(
    client: TestClient, engine: FakeEngine, prompt: list[Any]
) -> None:
    engine.say = lambda request: f"{len(request.tokens)} {request.seed}"
    found = ask(client, prompt=prompt, n=2, seed=3)
    n, m = (len(one.tokens) for one in engine.asked[1:3])
    texts = [one["text"] for one in found["choices"]]
    assert texts == [f"{n} 3", f"{n} 4", f"{m} 3", f"{m} 4"]
    assert found["usage"]["prompt_tokens"] == n + m
    streamed = stream(client, prompt=prompt, n=2, seed=3)
    assert [text(streamed, i) for i in range(4)] == texts


def test_tokens_are_a_prompt(client: TestClient, engine: FakeEngine) -> None:
    ask(client, prompt=[5, 6, 7])
    assert list(engine.asked[0].tokens) == [5, 6, 7]


def test_log_probabilities_stand_beside_each_other(client: TestClient) -> None:
    found = ask(client, logprobs=2)["choices"][0]["logprobs"]
    assert "".join(found["tokens"]) == SAID
    assert found["token_logprobs"] == [-0.1] * len(found["tokens"])
    for token, offset in zip(found["tokens"], found["text_offset"], strict=True):
        assert SAID[offset:].startswith(token)
    assert all(len(one) in (1, 2) for one in found["top_logprobs"])
    streamed = [one["choices"][0]["logprobs"] for one in stream(client, logprobs=2)]
    for name, values in found.items():
        assert [value for one in streamed if one for value in one[name]] == values


def test_an_echo_comes_first(client: TestClient) -> None:
    assert ask(client, echo=True)["choices"][0]["text"] == " Once" + SAID
    assert text(stream(client, echo=True)) == " Once" + SAID


def test_as_many_tokens_as_asked_for(client: TestClient) -> None:
    found = ask(client, max_tokens=5)
    assert found["usage"]["completion_tokens"] == 5
    assert found["choices"][0]["finish_reason"] == "length"
