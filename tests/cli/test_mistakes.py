"""What the parser of the command line refuses, in words of its user."""

from __future__ import annotations

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
    assert run_program(monkeypatch, "run", "a", "b") == 2
    assert "quotes" in capsys.readouterr().err


def test_an_option_without_its_value_names_the_help_of_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "-n") == 2
    assert "spec-cpu run --help" in capsys.readouterr().err
