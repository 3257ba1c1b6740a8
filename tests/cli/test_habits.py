"""What people who know other programs do: `-p`, `-f` alone, `-n -1`, `-c 0`, a prompt cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from program import run_program

if TYPE_CHECKING:
    from conftest import Models, Program

ASKED = ["--seed", "1", "-n", "20", "--ignore-eos"]


def test_the_prompt_may_be_an_option_an_argument_or_a_file(
    cli: Program, readable: Models, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("why?\nso")
    answers = [
        cli.answer(*readable.plain, *ASKED, *prompt)
        for prompt in (
            ["why?\nso"],
            ["-p", "why?\nso"],
            ["--prompt=why?\nso"],
            ["-f", str(file)],
            ["-e", "-p", r"why?\nso"],
            ["--escape", r"why?\x0aso"],
        )
    ]
    assert {(answer["prompt_tokens"], answer["text"]) for answer in answers} == {
        (answers[0]["prompt_tokens"], answers[0]["text"])
    }


def test_two_prompts_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "one", "-p", "two") == 2
    assert "give it as an argument or with --prompt, not both" in capsys.readouterr().err


def test_until_the_end_and_the_models_own_context(cli: Program, readable: Models) -> None:
    asked = [*readable.plain, "--seed", "1", "--ignore-eos", "why?"]
    answer = cli.answer("-n", "-1", "-c", "700", *asked)
    assert answer["finish"] == "context"
    assert answer["prompt_tokens"] + answer["tokens"] == 700
    assert cli.answer("-n", "5", "-c", "0", *asked)["tokens"] == 5


def test_a_prompt_cache(
    cli: Program,
    readable: Models,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "kept"
    asked = [*readable.pair, *ASKED, "why is it so?"]
    plain = cli.answer(*asked)["text"]
    for _ in range(2):
        assert cli.answer("--prompt-cache", file, *asked)["text"] == plain
    assert run_program(monkeypatch, "run", "--prompt-cache", file, *asked) == 0
    assert "of them kept from before" in capsys.readouterr().err
    file.write_text("my diary")
    assert run_program(monkeypatch, "run", "--prompt-cache", file, *asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("is no prompt cache of spec-cpu: give --prompt-cache another file")
    assert file.read_text() == "my diary"
