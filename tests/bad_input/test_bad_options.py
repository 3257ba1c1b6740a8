"""Bad options: out of range, contradicting each other, beyond the memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tiny
from calling import HUGE, Call, refused, spawn

from spec_cpu.machine import hardware


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("-k", "-1", "draft-tokens"),
        ("-k", "65", "64"),
        ("-k", HUGE, "draft-tokens"),
        ("-k", "x", "-k"),
        ("--rule", "x", "block"),
        ("--rule", "", "block"),
        ("--shape", "star", "chain"),
        ("--shape", "", "chain"),
        ("-n", "0", "max-tokens"),
        ("-n", "-2", "max-tokens"),
        ("-n", "1.5", "max-tokens"),
        ("--temp", "nan", "temp"),
        ("--temp", "-0.1", "temp"),
        ("--temp", "inf", "temp"),
        ("--temp", "warm", "temp"),
        ("--temp", "", "temp"),
        ("--top-k", "-1", "top-k"),
        ("--top-p", "0", "top-p"),
        ("--top-p", "-1", "top-p"),
        ("--top-p", "1.01", "top-p"),
        ("--top-p", "nan", "top-p"),
        ("--min-p", "-0.1", "min-p"),
        ("--min-p", "1.01", "min-p"),
        ("--min-p", "nan", "min-p"),
        ("--repeat-penalty", "0", "repeat-penalty"),
        ("--repeat-penalty", "-1", "repeat-penalty"),
        ("--repeat-penalty", "nan", "repeat-penalty"),
        ("--repeat-penalty", "inf", "repeat-penalty"),
        ("--frequency-penalty", "nan", "frequency-penalty"),
        ("--frequency-penalty", "-inf", "frequency-penalty"),
        ("--presence-penalty", "nan", "presence-penalty"),
        ("--presence-penalty", "inf", "presence-penalty"),
        ("--repeat-last-n", "-2", "repeat-last-n"),
        ("--seed", "-1", "seed"),
        ("--seed", "x", "seed"),
        ("-t", "0", "threads"),
        ("-t", "-1", "threads"),
        ("-c", "-5", "ctx"),
        ("--draft-ctx", "0", "draft-ctx"),
        ("--draft-ctx", "-1", "draft-ctx"),
        ("--draft-ctx", "31", "draft-ctx"),
        ("--logit-bias", "", "logit-bias"),
        ("--logit-bias", "x", "logit-bias"),
        ("--logit-bias", "5", "logit-bias"),
        ("--logit-bias", "=", "logit-bias"),
        ("--logit-bias", "5=x", "logit-bias"),
        ("--logit-bias", "1.5=1", "logit-bias"),
        ("--logit-bias", "-1=1", "logit-bias"),
        ("--logit-bias", "5=nan", "logit-bias"),
        ("--logit-bias", "5=inf", "logit-bias"),
        ("--stop", "", "stop"),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_name_and_value(
    call: Call, pair: list[str], option: str, value: str, word: str
) -> None:
    outcome = call("run", "hi", "-q", *pair, option, value)
    refused(outcome, 2, word, value.rpartition("=")[2])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temp", "1e-320"),
        ("--temp", "1e300"),
        ("--top-k", HUGE),
        ("--top-p", "1e-300"),
        ("--min-p", "1e-320"),
        ("--repeat-penalty", "1e300"),
        ("--repeat-penalty", "1e-300"),
        ("--frequency-penalty", "1e300"),
        ("--presence-penalty", "-1e300"),
        ("--repeat-last-n", HUGE),
        ("--seed", HUGE),
        ("--logit-bias", "5=1e300"),
        ("--logit-bias", "5=-1e300"),
    ],
)
def test_an_extreme_value_works_in_silence_or_is_refused_by_name(
    call: Call, pair: list[str], option: str, value: str
) -> None:
    penalties = ["--presence-penalty", "0.1"]
    outcome = call("run", "hi", "-q", *pair, *penalties, option, value)
    if outcome.code == 0:
        assert outcome.err == ""
        assert outcome.out
    else:
        refused(outcome, 2, option.lstrip("-"))


@pytest.mark.parametrize("token", ["320", "1000000", HUGE])
def test_a_bias_for_a_token_that_there_is_not_is_refused(
    call: Call, pair: list[str], token: str
) -> None:
    """Rule: a typing error in an id is no bias that silently does nothing."""
    refused(call("run", "hi", "-q", *pair, "--logit-bias", f"{token}=1"), 2, "logit-bias", token)
    assert call("run", "hi", "-q", *pair, "--logit-bias", "319=1").code == 0


def test_an_empty_stop_is_refused_before_the_first_turn(call: Call, pair: list[str]) -> None:
    refused(call("chat", *pair, "--stop", "END", "--stop", "", stdin=b"hi\n"), 2, "stop")


@pytest.mark.parametrize("threads", ["100000", "99999999999"])
def test_more_threads_than_there_can_be_are_refused(plain: list[str], threads: str) -> None:
    """Rule: llama.cpp must not get to crash on them."""
    refused(spawn("run", "hi", "-q", *plain, "-t", threads), 2, "threads")


@pytest.mark.parametrize("value", ["1", "3"])
def test_a_context_too_small_to_draft_in_is_named_as_it_was_given(
    call: Call, pair: list[str], value: str
) -> None:
    outcome = call("run", "hi", "-q", *pair, "-c", value)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code)
    assert re.search(r"(?<!draft-)(ctx|context)", outcome.err)


def test_a_context_of_one_token_holds_no_prompt(call: Call, plain: list[str]) -> None:
    refused(call("run", "hi", "-q", *plain, "-c", "1"), 1, "context", "1", "--ctx")


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["run", "hi", "there"],
        ["run", "hi", "--nonsense"],
        ["run", "hi", "--seed"],
        ["chat", "hi"],
        ["chat", "--nonsense"],
        ["models", "nonsense"],
        ["models", "show"],
        ["models", "pull"],
        ["models", "list", "x"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(call: Call, args: list[str]) -> None:
    refused(call(*args), 2, "--help")


@pytest.mark.parametrize("args", [[], ["models"], ["kernels"]])
def test_without_a_command_there_is_help(call: Call, args: list[str]) -> None:
    outcome = call(*args)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Usage" in outcome.out


def test_options_that_contradict_each_other_are_refused(call: Call, tiny_target: Path) -> None:
    pair = ["--pair", "smollm2-135m"]
    refused(call("run", "hi", *pair, "-m", tiny_target), 2, "--pair", "--target")
    refused(call("run", "hi", "-m", tiny_target, "--raw", "--system", "x"), 2, "--system", "--raw")
    refused(call("run", "hi", "-m", tiny_target, "--no-special"), 2, "--no-special", "--raw")


# Memory


def test_a_context_beyond_the_memory_is_refused(call: Call, default_path: Path) -> None:
    outcome = call("run", "hi", "-q", "-m", default_path, "-d", "none", "-c", "100000000")
    refused(outcome, 1, "100,000,000", "GB", "--ctx")


@pytest.mark.parametrize("option", ["-c", "--draft-ctx"])
def test_the_memory_check_counts_what_a_pass_needs(
    call: Call, pair: list[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Rule: the attention mask is part of it; for a small model it is more than the cache.

    Of 500,000 tokens, the cache takes 64 MB here, and the buffers of a pass 500 MB.
    """
    monkeypatch.setattr(hardware, "available_memory", lambda: 300_000_000)
    refused(call("run", "hi", "-q", *pair, option, "500000"), 1, "500,000", "ctx")


def test_a_context_too_large_for_a_number_of_llama_cpp_is_refused(tmp_path: Path) -> None:
    """Rule: 2**32 + 1 does not become 1 (a recurrent memory does not grow with the context)."""
    mamba = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=320)
    outcome = spawn("run", "hi", "-q", "-m", mamba, "-d", "none", "-n", "5", "-c", 2**32 + 1)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "ctx")
