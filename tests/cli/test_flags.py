"""In the library messages speak of parameters, on the command line of flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.app import app
from spec_cpu_cli.flags import with_flags

import spec_cpu

COMMAND = re.compile(r"`spec-cpu [^`]*`")  # what a person types, in either
FLAG = re.compile(r"--[a-z][a-z-]*")
LIBRARY = Path(spec_cpu.__file__).parent


def messages() -> Iterator[tuple[str, str]]:
    """The texts of all that the library raises or tells: where they stand, and what they say."""
    for file in sorted(LIBRARY.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and id(node) not in described:
                text = COMMAND.sub("", str(node.value))
                if len(text.split()) > 1:  # not an argument for another program
                    yield f"{file.relative_to(LIBRARY)}:{node.lineno}", text


def flags() -> set[str]:
    commands = [typer.main.get_command(app)]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
    return {flag for command in commands for param in command.params for flag in param.opts}


def test_the_library_knows_of_no_flags() -> None:
    assert {where: found for where, text in messages() if (found := FLAG.findall(text))} == {}


def test_every_flag_that_a_parameter_becomes_exists() -> None:
    named = [(where, flag) for where, text in messages() for flag in FLAG.findall(with_flags(text))]
    assert len(named) > 20, "this looks at nothing"
    known = flags()
    assert [(where, flag) for where, flag in named if flag not in known] == []


@pytest.mark.parametrize(
    ("parameter", "flag"),
    [
        ("k", "--draft-tokens"),
        ("temperature", "--temp"),
        ("penalty_last_n", "--repeat-last-n"),
        ("top_p", "--top-p"),
        ("ctx", "--ctx"),
    ],
)
def test_a_parameter_becomes_the_flag(parameter: str, flag: str) -> None:
    assert (
        with_flags(f"`{parameter}` must be 1: see {parameter}")
        == f"{flag} must be 1: see {parameter}"
    )


@given(st.text(st.characters(exclude_characters="`")))
def test_what_is_no_parameter_stays(text: str) -> None:
    assert with_flags(text) == text
    assert with_flags(f"`spec-cpu {text}`") == f"`spec-cpu {text}`"
