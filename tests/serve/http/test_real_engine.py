"""The server before the engine that answers many at a time, with tiny models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from made_up import measured
from sse import chunks
from starlette.testclient import TestClient

from spec_cpu.serve.engine.loading import load_engine
from spec_cpu.serve.http.app import make_app
from spec_cpu.serve.http.service import Service
from spec_cpu.serve.http.settings import HttpSettings

CHAT = "/v1/chat/completions"
SOME = {"max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def client(served_path: Path) -> Iterator[TestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spec_cpu.costs.measure.measure", measured)
        engine, _ = load_engine(served_path, ctx=256, slots=2, threads=1)
    service = Service(engine, HttpSettings(name="tiny"))
    with TestClient(make_app(service), "http://127.0.0.1") as client:
        yield client
    engine.close()


def ask(client: TestClient, text: str, **given: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    done = client.post(CHAT, json={"messages": messages, **SOME, **given})
    assert done.status_code == 200, done.text
    return chunks(done.text) if given.get("stream") else done.json()


def test_the_same_seed_gives_the_same_text_alone_and_in_company(client: TestClient) -> None:
    def one(seed: int) -> str:
        return str(ask(client, "Hi", seed=seed)["choices"][0]["message"]["content"])

    alone = [one(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one, range(4))) == alone
    assert len(set(alone)) > 1


def test_a_stream_is_what_is_said_at_once_and_its_tokens_are_its_text(client: TestClient) -> None:
    whole = ask(client, "Hi", seed=1)
    found = ask(client, "Hi", seed=1, stream=True, spec_cpu={"tokens": True})
    said = "".join(one["choices"][0]["delta"].get("content") or "" for one in found)
    assert said == whole["choices"][0]["message"]["content"]
    told = [one["spec_cpu"] for one in found if "spec_cpu" in one]
    tokens = [token for one in told for token in one["tokens"]]
    assert "".join(token["text"] for token in tokens) == said
    assert len(tokens) == whole["usage"]["completion_tokens"] == 24
    assert told[-1]["summary"]["drafted"] == sum(one["drafted"] for one in told)
    assert {token["origin"] for token in tokens} <= {"plain", "accepted", "correction", "bonus"}


def test_log_probabilities_are_the_models(client: TestClient) -> None:
    found = ask(client, "Hi", temperature=0, logprobs=True, top_logprobs=3)
    for one in found["choices"][0]["logprobs"]["content"]:
        best, *others = one["top_logprobs"]
        assert best["logprob"] >= one["logprob"] - 1e-4  # the end of the answer is not allowed
        assert all(best["logprob"] >= other["logprob"] for other in others)


def test_what_was_read_before_is_known(client: TestClient) -> None:
    question = "A long question, that is asked twice by somebody."
    ask(client, question)
    again = ask(client, question)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert again > 20


def test_a_prediction_helps_and_changes_nothing(client: TestClient) -> None:
    plain = ask(client, "Hi", temperature=0)
    said = plain["choices"][0]["message"]["content"]
    helped = ask(client, "Hi", temperature=0, prediction={"type": "content", "content": said})
    assert helped["choices"][0]["message"]["content"] == said
    details = helped["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] >= 0


def test_embeddings_tell_texts_apart(client: TestClient) -> None:
    found = client.post("/v1/embeddings", json={"input": ["one", "one", "another"]}).json()
    first, same, other = (one["embedding"] for one in found["data"])
    assert first == pytest.approx(same, abs=1e-5)
    assert first != pytest.approx(other, abs=1e-2)
    assert sum(x * x for x in first) == pytest.approx(1)


def test_what_does_not_fit(client: TestClient) -> None:
    messages = [{"role": "user", "content": "long " * 300}]
    done = client.post(CHAT, json={"messages": messages})
    assert (done.status_code, done.json()["error"]["code"]) == (400, "context_length_exceeded")
    full = ask(client, "Hi", max_tokens=None)
    assert full["choices"][0]["finish_reason"] == "length"
    assert full["usage"]["total_tokens"] <= 256


def test_counters_and_state(client: TestClient) -> None:
    ask(client, "Hi")
    state = client.get("/spec-cpu/state").json()
    assert (state["slots"], state["active"], state["context"]) == (2, 0, 256)
    assert state["tokens"] >= 24
    assert f"spec_cpu_tokens_total {float(state['tokens'])}" in client.get("/metrics").text
    assert json.dumps(state)
