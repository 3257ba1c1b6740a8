"""What the server says of itself."""

from __future__ import annotations

from dataclasses import asdict

from fake_engine import CONTEXT, FakeEngine
from serving import Serve
from starlette.testclient import TestClient

from spec_cpu.sampling.pipeline import SamplingParams


def test_the_one_model(client: TestClient) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["context_length"]) == ("tiny", "model", CONTEXT)
    assert client.get("/v1/models/tiny").json() == model
    missing = client.get("/v1/models/gpt/5")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_health(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    client.app.state.service.closing = True  # type: ignore[attr-defined]
    assert client.get("/health").status_code == 503
    closing = client.post("/v1/completions", json={"prompt": "a"})
    assert (closing.status_code, "retry-after" in closing.headers) == (503, True)
    assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 503


def test_props_are_what_holds_where_nothing_is_said(serve: Serve, engine: FakeEngine) -> None:
    found = serve(sampling=SamplingParams(temperature=0.1), max_tokens=9).get("/props").json()
    assert (found["model"], found["total_slots"], found["context"]) == ("tiny", 1, CONTEXT)
    assert (found["sampling"]["temperature"], found["sampling"]["repeat_last_n"]) == (0.1, 64)
    assert found["max_tokens"] == 9
    assert found["chat_template"] == engine.model.chat_template.source


def test_the_engines_state(client: TestClient, engine: FakeEngine) -> None:
    found = client.get("/spec-cpu/state").json()
    expected = {**asdict(engine.state), "by_source": {"ngram": {"drafted": 20, "accepted": 10}}}
    assert found == {"model": "tiny", **expected, "verify": [1.0, 1.1, 1.2]}


def test_metrics_are_prometheus_own(client: TestClient) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    client.post("/v1/completions", json={"prompt": "Once"})
    client.post("/v1/completions", json={"prompt": 3})
    client.get("/no/such/path")
    text = client.get("/metrics").text
    found = {
        (one.name, *sorted(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    assert found["spec_cpu_requests_total", "/v1/completions", "200"] == 1
    assert found["spec_cpu_requests_total", "/v1/completions", "400"] == 1
    assert found["spec_cpu_requests_total", "404", "other"] == 1
    assert found["spec_cpu_answers_total", "stop"] == 1
    assert found["spec_cpu_prompt_tokens_total",] > 1
    assert found["spec_cpu_time_to_first_token_seconds_count",] == 1
    assert found["spec_cpu_token_gap_seconds_count",] > 1
    assert found["spec_cpu_drafted_tokens_total", "ngram"] == 20
    assert found["spec_cpu_accepted_tokens_total", "ngram"] == 10
    assert found["spec_cpu_pass_cost", "2"] == 1.1
    assert found["spec_cpu_slots",] == 1
    assert found["spec_cpu_pass_rows",] == 3
    assert found["spec_cpu_waiting_requests",] == 0
