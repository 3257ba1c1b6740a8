"""/v1/embeddings."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from fake_engine import FakeEngine
from starlette.testclient import TestClient

PATH = "/v1/embeddings"


@pytest.mark.parametrize(
    ("given", "n"), [("a text", 1), (["a", "b", "c"], 3), ([5, 6], 1), ([[5, 6], [7]], 2)]
)
def test_a_vector_of_length_one_for_each_text(client: TestClient, given: Any, n: int) -> None:
    found = client.post(PATH, json={"input": given}).json()
    assert [one["index"] for one in found["data"]] == list(range(n))
    for one in found["data"]:
        assert one["embedding"] == pytest.approx([0.6, 0.8, 0.0])
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] >= n


def test_numbers_in_base64(client: TestClient) -> None:
    found = client.post(PATH, json={"input": "a", "encoding_format": "base64"}).json()
    numbers = np.frombuffer(base64.b64decode(found["data"][0]["embedding"]), "<f4")
    assert numbers.tolist() == pytest.approx([0.6, 0.8, 0.0])


def test_a_model_that_gives_none(client: TestClient, engine: FakeEngine) -> None:
    engine.embeds = False
    done = client.post(PATH, json={"input": "a"})
    assert done.status_code == 501
    assert done.json()["error"]["message"] == "this model gives no embeddings"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"input": ""},
        {"input": []},
        {"input": [1, "a"]},
        {"input": 3},
        {"input": [-1]},
        {"input": [10**9]},
        {"input": "a", "dimensions": 2},
        {"input": [True]},
    ],
)
def test_what_makes_no_sense(client: TestClient, given: dict[str, Any]) -> None:
    done = client.post(PATH, json=given)
    assert done.status_code == 400
    assert done.json()["error"]["type"] == "invalid_request_error"
