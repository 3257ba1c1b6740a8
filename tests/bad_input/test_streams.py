"""Standard streams that are closed, full, or of another encoding."""

from __future__ import annotations

import os
import subprocess

import pytest
from calling import DEADLINE, PROGRAM, Call, refused, spawn


@pytest.mark.parametrize(
    "args",
    [
        ["run", "hi", "-c", "2000", "-n", "1000", "--ignore-eos"],
        ["run", "hi", "-q", "--json"],
        ["chat", "-q", "-c", "2000", "-n", "1000"],
    ],
)
def test_a_closed_pipe_ends_quietly(pair: list[str], args: list[str]) -> None:
    command, *rest = args
    read, write = os.pipe()
    process = subprocess.Popen(
        [*PROGRAM, command, *pair, *rest],
        stdin=subprocess.PIPE,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    if "--json" not in args:
        assert process.stdin
        process.stdin.write(b"hi\n" * 20 if command == "chat" else b"")
        process.stdin.flush()
        assert os.read(read, 5)
    os.close(read)
    _, err = process.communicate(timeout=DEADLINE)
    lines = [line for line in err.decode().splitlines() if not line.startswith("note: ")]
    assert lines == []
    assert process.returncode == 0


@pytest.mark.parametrize("args", [["models", "list"], ["--help"], ["run", "--help"]])
def test_a_pipe_closed_from_the_start_ends_quietly(args: list[str]) -> None:
    outcome = spawn(*args, redirect="| true")
    assert outcome.err == ""
    assert spawn(*args, redirect="2>&1 | true").out == ""


def test_a_closed_standard_input_does_not_disturb(pair: list[str]) -> None:
    expected = spawn("run", "hi", "-q", *pair)
    outcome = spawn("run", "hi", "-q", *pair, redirect="<&-")
    assert outcome == expected
    assert outcome.code == 0


def test_a_chat_without_standard_input_ends(call: Call, pair: list[str]) -> None:
    outcome = call("chat", "-q", *pair, stdin=None)
    assert outcome.out == ""
    if outcome.code:
        refused(outcome, outcome.code, "input")


OUTPUTS = [
    ["run", "hi", "-q"],
    ["run", "hi", "-q", "--json"],
    ["chat", "-q"],
    ["models", "list"],
    ["models", "list", "--json"],
    ["--version"],
]


@pytest.mark.parametrize("args", OUTPUTS)
@pytest.mark.parametrize(("redirect", "word"), [(">&-", "output"), (">/dev/full", "space")])
def test_output_that_cannot_be_written_is_said(
    pair: list[str], args: list[str], redirect: str, word: str
) -> None:
    models = pair if args[0] in ("run", "chat") else []
    refused(spawn(*args, *models, redirect=redirect, stdin=b"hi\n"), 1, word)


def test_without_standard_error_the_text_comes_and_nothing_else(pair: list[str]) -> None:
    expected = spawn("run", "hi", "-q", *pair)
    outcome = spawn("run", "hi", *pair, redirect="2>&-")
    assert (outcome.code, outcome.out) == (0, expected.out)
    failed = spawn("run", "hi", *pair, "-k", "99", redirect="2>&-")
    assert (failed.code, failed.out) == (2, "")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict", "utf-8:strict"])
@pytest.mark.parametrize("command", [["run", "hi é"], ["run", "hi é", "--json"], ["chat"]])
def test_output_of_any_encoding_takes_the_answer(
    pair: list[str], encoding: str, command: list[str]
) -> None:
    """Rule: what the encoding lacks is replaced or escaped; the answer comes to its end."""
    env = {"PYTHONIOENCODING": encoding}
    outcome = spawn(*command, "-q", *pair, "-n", "60", stdin=b"hi\n", env=env)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out
    if "--json" in command:
        assert outcome.json["tokens"] == 60 or outcome.json["finish"] == "stop"


@pytest.mark.parametrize("coerced", ["1", "0"])
def test_a_c_locale_works_or_is_refused(pair: list[str], coerced: str) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": coerced, "PYTHONCOERCECLOCALE": coerced}
    outcome = spawn("run", "hi é", "-q", *pair, "-n", "60", env=env)
    if outcome.code:
        refused(outcome, 2, "UTF-8")
    else:
        assert outcome.err == ""
    assert spawn("run", "hi", "-q", *pair, "-n", "60", env=env).code == 0
