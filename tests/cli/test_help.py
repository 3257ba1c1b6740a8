"""`--help`, `--version`, and what makes no sense."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
import typer
from program import run_program
from spec_cpu_cli.app import app

if TYPE_CHECKING:
    from conftest import Models, Program

HELPED = [
    [],
    ["run"],
    ["chat"],
    ["serve"],
    ["models"],
    *(["models", name] for name in ("list", "show", "pull", "path")),
]


@pytest.mark.parametrize("command", HELPED, ids=" ".join)
def test_help_is_quick_to_come(cli: Program, command: list[str]) -> None:
    code = (
        "import sys\n"
        "from spec_cpu_cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    print('CODE', end.code)\n"
        "print('LOADED', [m for m in ('llama_cpp', 'numpy', 'rich.live', 'starlette') "
        "if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"],
        capture_output=True,
        text=True,
        env=cli.env,
        check=True,
    )
    assert done.stdout.splitlines()[-2:] == ["CODE 0", "LOADED []"]
    assert "Usage: " in done.stdout
    assert "--help" in done.stdout


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command, with the words that call it."""
    yield name.strip(), group
    for word, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {word}")


OPTIONS = [
    pytest.param(option, id=f"{name} {option.opts[0]}")
    for name, command in commands(typer.main.get_command(app))
    for option in command.params
    if option.param_type_name == "option"
]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_says_what_it_does_and_what_it_is_without_it(option: Any) -> None:
    assert len((option.help or "").split()) >= 2
    if option.required or option.is_flag:
        return
    assert option.show_default, f"what is it without {option.opts[0]}?"
    assert option.default not in (None, (), []) or isinstance(option.show_default, str)


TEXTS = [
    pytest.param(text, id=f"{name} {what}")
    for name, command in commands(typer.main.get_command(app))
    for what, text in [
        ("itself", command.help),
        *((param.name, param.help) for param in command.params),
    ]
]
JARGON = (
    "alpha",
    "verif",
    "speculat",
    "propos",
    "greedy",
    "distribution",
    "logits",
    "turn by turn",
    "plain step",
    "textbook",
    "wheel",
)


@pytest.mark.parametrize("text", TEXTS)
def test_help_is_for_somebody_who_does_not_know_the_paper(text: str) -> None:
    assert text
    assert [word for word in JARGON if word in text.lower()] == []


@pytest.mark.parametrize("command", ["run", "chat", "serve", "bench", "plan", "train"])
def test_help_shows_what_every_option_is_without_it(cli: Program, command: str) -> None:
    shown = " ".join(cli(command, "--help").text.replace("│", " ").split())
    for name, found in commands(typer.main.get_command(app)):
        for option in found.params if name == command else ():
            if isinstance(default := getattr(option, "show_default", None), str):
                assert f"[default: ({default})]" in shown, option.opts[0]


def test_version(cli: Program) -> None:
    done = cli("--version")
    assert (done.code, done.text) == (0, f"spec-cpu {version('spec-cpu')}\n")


@pytest.mark.parametrize(
    "wrong",
    [["--no-such-option"], ["-n", "0"], ["-n", "many"], ["--rule", "coin"], ["-k", "65"], ["more"]],
    ids=" ".join,
)
def test_a_wrong_option_is_one_line_and_exit_2(
    cli: Program, readable: Models, wrong: list[str]
) -> None:
    done = cli("run", *readable.pair, "-q", "why?", *wrong)
    assert done.out == b""
    assert len(done.err.splitlines()) == 1, done.err[-300:]
    assert done.err.startswith("spec-cpu: ")
    assert done.code == 2


@pytest.mark.parametrize(
    "words", [name.split() for name, _ in commands(typer.main.get_command(app))]
)
def test_no_flag_is_shown_with_a_type(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, *words, "--help") == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "bool" not in shown
