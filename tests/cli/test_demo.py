"""`spec-cpu demo`: both answers with what they took, said honestly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import measured
from program import run_program
from spec_cpu_cli.demo import PROMPTS, comparison

import spec_cpu

if TYPE_CHECKING:
    from conftest import Models


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spec_cpu.costs.measure.measure", measured)
    monkeypatch.setattr("spec_cpu_cli.demo._MAX_TOKENS", 20)


def test_each_prompt_is_answered_with_and_without(
    readable: Models, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = []
    generate = spec_cpu.Session.generate

    def noted(session: spec_cpu.Session, prompt: str, **how: Any) -> Any:
        pins.append((prompt, how["k"]))
        return generate(session, prompt, **how)

    monkeypatch.setattr(spec_cpu.Session, "generate", noted)
    models = ("-m", readable.target, "-d", readable.draft, "-t", 1, "-c", 4096, "-q")
    assert run_program(monkeypatch, "demo", *models) == 0
    out = capsys.readouterr().out
    assert pins == [(prompt, k) for prompt in PROMPTS for k in (None, 0, 0, None)]
    assert all(f"> {prompt}\n" in out for prompt in PROMPTS)
    assert out.count("without guessing ahead") == 2
    assert "demo model" not in out  # it is the person's own


def test_the_default_pair_is_called_what_it_is(
    readable: Models, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spec_cpu.models.fetch.resolve", lambda *_: readable.target)
    monkeypatch.setattr("spec_cpu_cli.demo.PROMPTS", ("Why?",))
    assert run_program(monkeypatch, "demo", "-d", "ngram", "-t", 1, "-q") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "demo model of 135M parameters" in last
    assert last.endswith("spec-cpu models suggest")


def test_there_must_be_something_to_compare(
    readable: Models, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "demo", "-m", readable.target, "-d", "none") == 2
    assert "give a --draft" in capsys.readouterr().err


def answer(tokens: int, seconds: float) -> Any:
    return SimpleNamespace(tokens=tokens, decode=seconds, tokens_per_second=tokens / seconds)


@given(seconds=st.floats(0.1, 100), ratio=st.floats(0.1, 20))
def test_the_comparison_says_which_is_faster(seconds: float, ratio: float) -> None:
    said = comparison(answer(100, seconds / ratio), answer(100, seconds))
    if ratio > 1.021:
        assert "faster" in said or "times as fast" in said
    elif ratio < 0.979:
        assert said.endswith("slower")
    assert f"{seconds / 2:.2f} s" in said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "2.0 times as fast"),
        (0.8, "25% faster"),
        (1.25, "20% slower"),
        (1.01, "about as fast"),
    ],
)
def test_the_words(seconds: float, words: str) -> None:
    assert words in comparison(answer(100, seconds), answer(100, 1.0))
