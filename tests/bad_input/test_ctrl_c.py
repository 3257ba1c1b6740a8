"""Impatient people: Ctrl-C while it loads, reads and answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
        self._out = b""

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

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> Outcome:
        out, err = self.process.communicate(timeout=DEADLINE)
        return Outcome(
            self.process.returncode,
            (self._out + out).decode("utf-8", "replace"),
            err.decode(),
        )


@pytest.fixture
def endless(models: Path) -> list[str]:
    """Options for an answer that takes some seconds, by a model whose prompts take as long."""
    file = models / "endless.gguf"
    if not file.exists():
        tiny.write_llama(
            file, n_vocab=320, n_ctx=16000, n_embd=256, n_layer=8, n_ff=1024, dtype="F16"
        )
    return ["-m", str(file), "-d", "none", "-c", "16000", "-n", "15000", "-t", "1"]


# Arguments: an object, the name of a function in it, how often to press Ctrl-C at its first call;
# then those of the program.
INTERRUPTED = """
import pkgutil, signal, sys
from spec_cpu_cli.main import main
owner, name, times = pkgutil.resolve_name(sys.argv.pop(1)), sys.argv.pop(1), int(sys.argv.pop(1))
real = getattr(owner, name)

def interrupted(*args, **named):
    setattr(owner, name, real)
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)
    return real(*args, **named)

setattr(owner, name, interrupted)
main()
"""


def interrupted_in(
    owner: str, name: str, times: int, *args: object, stdout: int = subprocess.PIPE
) -> Outcome:
    """Runs the program in a process whose first call of a function is when Ctrl-C is pressed."""
    command = [sys.executable, "-c", INTERRUPTED, owner, name, times, *args]
    done = subprocess.run(
        list(map(str, command)),
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=DEADLINE,
        check=False,
    )
    return Outcome(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("spec_cpu_cli.app", "app"),
        ("spec_cpu.llama.model:Model", "__init__"),
        ("spec_cpu.llama.context:Context", "__init__"),
        ("spec_cpu.session:Session", "__init__"),
    ],
)
def test_ctrl_c_while_it_loads_ends_the_program_quietly(
    endless: list[str], owner: str, name: str
) -> None:
    outcome = interrupted_in(owner, name, 1, "run", "hi", "-q", "--ignore-eos", *endless)
    assert outcome == Outcome(130, "", "")


def test_ctrl_c_keeps_the_text_and_shows_the_summary(endless: list[str]) -> None:
    with Running(["run", "hi", "--ignore-eos", *endless]) as running:
        running.wait_for_text()
        running.interrupt()
        outcome = running.end()
    assert outcome.code == 130
    assert outcome.out.strip()
    assert outcome.out.endswith("\n")
    assert "tok/s" in outcome.err
    assert "Traceback" not in outcome.err


SHOW = ("spec_cpu_cli.live:AnswerView", "show")
READ = ("spec_cpu.session:Session", "generate")


def test_ctrl_c_leaves_json_whole(endless: list[str]) -> None:
    outcome = interrupted_in(*SHOW, 1, "run", "hi", "--json", "--ignore-eos", *endless)
    assert outcome.code == 130
    assert outcome.json["finish"] == "interrupted"
    assert 0 < outcome.json["tokens"] < 15000


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_ctrl_c_while_the_prompt_is_read(endless: list[str], extra: list[str]) -> None:
    Path("prompt.txt").write_text("word " * 3000)
    outcome = interrupted_in(*READ, 1, "run", "-f", "prompt.txt", *endless, *extra)
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    if extra:
        assert outcome.json["tokens"] == 0
    else:
        assert outcome.out == ""


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """To write to it takes for ever."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("moment", "prompt"), [(READ, "word " * 3000), (SHOW, "hi")])
def test_a_second_ctrl_c_leaves_at_once(
    endless: list[str], moment: tuple[str, str], prompt: str, full_pipe: int
) -> None:
    """Though it can write nothing any more."""
    args = ["run", prompt, "--ignore-eos", *endless]
    outcome = interrupted_in(*moment, 2, *args, stdout=full_pipe)
    assert outcome.code == 130
    assert "tok/s" not in outcome.err, "it took the time for a summary"
    assert "Traceback" not in outcome.err


def test_ctrl_c_in_a_chat_stops_the_answer_only(endless: list[str]) -> None:
    with Running(["chat", *endless]) as running:
        running.say(b"hi\n")
        running.wait_for_text()
        running.interrupt()
        running.say(b"/stats\n/save text.md\n/exit\n")
        outcome = running.end()
    assert outcome.code == 0
    assert "tok/s" in outcome.err
    assert "2 turns" in outcome.err
    assert Path("text.md").read_text(encoding="utf-8").count("## ") >= 2
