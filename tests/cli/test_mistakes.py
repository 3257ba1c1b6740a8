"""What the parser of the command line refuses, in words of its user."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import run_program


@pytest.mark.parametrize("command", ["pull", "show", "path", "rm"])
def test_a_model_that_is_not_named_is_asked_for(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "models", command) == 2
    shown = capsys.readouterr().err
    assert "give the name of a model" in shown
    assert "takes" not in shown


def test_a_text_without_quotes_is_told_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "a", "b", "(c)") == 2
    shown = capsys.readouterr().err
    assert "beyond the prompt: b (c). " in shown
    assert "quotes" in shown


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("chat hi", "chat takes no message (hi): type it once the chat has begun"),
        ("plan hi", "this is more than plan takes: hi"),
        ("models show a hi", "this is more than show takes: hi"),
    ],
)
def test_only_a_prompt_is_told_of_quotes(
    command: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, *command.split()) == 2
    assert capsys.readouterr().err.startswith(f"spec-cpu: {told} (see ")


def test_a_misspelt_option_is_told_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "--tempp", "1", "hi") == 2
    assert "no such option: --tempp; did you mean --temp" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["run", "hi", "--temp", "1e9999"], "a finite number from 0.0001 up, not inf"),
        (["run", "hi", "--memory", ""], "--memory is empty"),
    ],
)
def test_what_makes_no_sense_is_told_as_it_was_typed(
    args: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_target: Path,
) -> None:
    assert run_program(monkeypatch, *args, "-m", tiny_target) == 2
    assert problem in capsys.readouterr().err


def test_an_option_without_its_value_names_the_help_of_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "-n") == 2
    assert "spec-cpu run --help" in capsys.readouterr().err
