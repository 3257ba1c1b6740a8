"""How an answer ends, and what `--json` makes of it."""

from __future__ import annotations

import pytest
from calling import HUGE, Call, refused


@pytest.mark.parametrize("tokens", ["1000", HUGE])
@pytest.mark.parametrize("drafting", [True, False])
def test_a_context_that_fills_up_ends_the_answer_whole(
    call: Call, pair: list[str], tokens: str, drafting: bool
) -> None:
    args = ["run", "hi", "-q", "--raw", "--json", *pair, "--temp", "0", "--ignore-eos"]
    if not drafting:
        args += ["-d", "none"]
    full = call(*args, "-c", "64", "-n", tokens)
    assert (full.code, full.err) == (0, "")
    assert full.json["finish"] == "context"
    assert full.json["prompt_tokens"] + full.json["tokens"] == 64
    roomy = call(*args, "-c", "256", "-n", full.json["tokens"])
    assert roomy.json["finish"] == "length"
    assert full.json["text"] == roomy.json["text"]


def test_a_stop_string_is_not_part_of_the_answer(call: Call, pair: list[str]) -> None:
    args = ["run", "hi", "-q", "--raw", "--json", *pair, "--temp", "0", "-n", "40"]
    text = call(*args).json["text"]
    stop = text[10:13]
    stopped = call(*args, "--stop", stop).json
    assert stopped["text"] == text[: text.index(stop)]
    assert stopped["finish"] == "stop"


def test_an_empty_stop_string_stops_nothing(call: Call, pair: list[str]) -> None:
    outcome = call("run", "hi", "-q", "--json", *pair, "--stop", "")
    if outcome.code == 0:
        assert outcome.json["tokens"] == 5
    else:
        refused(outcome, 2, "stop")


@pytest.mark.parametrize("tokens", ["1", "2", "50"])
@pytest.mark.parametrize("k", ["0", "1", "64"])
def test_json_is_json(call: Call, pair: list[str], tokens: str, k: str) -> None:
    """Rule: one object, without NaN or Infinity, however short the answer."""
    outcome = call("run", "hi", *pair, "-n", tokens, "-k", k, "--ignore-eos", "--json", "-q")
    assert outcome.code == 0
    assert outcome.json["tokens"] == int(tokens)
    assert outcome.out.count("\n") == 1
