"""Impatient people: Ctrl-C while it loads, reads and answers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiny
from calling import DEADLINE, PROGRAM, Outcome


class Running:
    """A process of the program that is sent signals; killed at the end, if it has to be."""

    def __init__(self, args: Sequence[object]) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._out = self._err = b""

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def say(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line)

    def wait_for_text(self) -> None:
        assert self.process.stdout
        self._out += self.process.stdout.read(1)

    def wait_for_notice(self) -> None:
        """Notices come when the models are loaded, right before the prompt is read."""
        assert self.process.stderr
        self._err += self.process.stderr.readline()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, timeout: float = DEADLINE) -> Outcome:
        out, err = self.process.communicate(timeout=timeout)
        return Outcome(
            self.process.returncode,
            (self._out + out).decode("utf-8", "replace"),
            (self._err + err).decode(),
        )


@pytest.fixture
def endless(models: Path) -> list[str]:
    """Options for an answer that takes some seconds, by a model whose prompts take as long."""
    file = models / "endless.gguf"
    if not file.exists():
        tiny.write_llama(
            file, n_vocab=320, n_ctx=16000, n_embd=256, n_layer=8, n_ff=1024, dtype="F16"
        )
    return ["-m", str(file), "-c", "16000", "-n", "15000", "-t", "1"]


# Ctrl-C may come before `main` has begun: what Python makes of it then is not ours.
READY = """
import os, sys
from spec_cpu_cli.main import main
try:
    os.write(1, b".")
    main()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5])
def test_ctrl_c_while_it_loads_ends_the_program_quietly(endless: list[str], seconds: float) -> None:
    command = [sys.executable, "-c", READY, "run", "hi", "-q", "--ignore-eos", *endless]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    process.stdout.read(1)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert err == b""


def test_ctrl_c_keeps_the_text_and_shows_the_summary(endless: list[str]) -> None:
    with Running(["run", "hi", "--ignore-eos", *endless]) as running:
        running.wait_for_text()
        time.sleep(0.2)
        running.interrupt()
        outcome = running.end()
    assert outcome.code == 130
    assert outcome.out.strip()
    assert outcome.out.endswith("\n")
    assert "tok/s" in outcome.err
    assert "Traceback" not in outcome.err


def test_ctrl_c_leaves_json_whole(endless: list[str]) -> None:
    with Running(["run", "hi", "--json", "--ignore-eos", *endless]) as running:
        running.wait_for_notice()
        time.sleep(1)
        running.interrupt()
        outcome = running.end()
    assert outcome.code == 130
    assert outcome.json["finish"] == "interrupted"


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_ctrl_c_while_the_prompt_is_read(endless: list[str], extra: list[str]) -> None:
    Path("prompt.txt").write_text("word " * 3000)
    with Running(["run", "-f", "prompt.txt", *endless, *extra]) as running:
        running.wait_for_notice()
        time.sleep(0.2)
        running.interrupt()
        outcome = running.end()
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    if extra:
        assert outcome.json["tokens"] == 0
    else:
        assert outcome.out == ""


@pytest.mark.parametrize("prompt", ["hi", "word " * 3000])
def test_a_second_ctrl_c_leaves_at_once(endless: list[str], prompt: str) -> None:
    with Running(["run", prompt, "--ignore-eos", *endless]) as running:
        running.wait_for_notice()
        time.sleep(0.2)
        running.interrupt()
        time.sleep(0.02)
        running.interrupt()
        outcome = running.end(timeout=5)
    # In the last moments, with the answer done, it may be the signal itself that ends the process:
    # to a shell that is 130 as well.
    assert outcome.code in (130, -signal.SIGINT)
    assert "Traceback" not in outcome.err


def test_ctrl_c_in_a_chat_stops_the_answer_only(endless: list[str]) -> None:
    with Running(["chat", *endless]) as running:
        running.say(b"hi\n")
        running.wait_for_text()
        running.interrupt()
        time.sleep(0.5)
        running.say(b"/stats\n/save text.md\n/exit\n")
        outcome = running.end()
    assert outcome.code == 0
    assert "tok/s" in outcome.err
    assert "2 turns" in outcome.err
    assert Path("text.md").read_text(encoding="utf-8").count("## ") >= 2
