"""A machine is lost within an answer: what was said stays, and a chat goes on from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import run_program
from spec_cpu_cli import options as opt
from spec_cpu_cli.chat.loop import converse
from spec_cpu_cli.chat.state import Chat
from spec_cpu_cli.keeping import KeepOptions
from tiny_talk import write_talker

from spec_cpu.conversations.log import Log
from spec_cpu.errors import RemoteError
from spec_cpu.llama.model import Model

SILENT = ["0=-inf", "1=-inf", "100=-inf", "98=-inf", "99=-inf"]  # what ends an answer
LOST = "the RPC server far:1 was lost"


class Machine:
    """Is lost after so many passes."""

    free_memory = 2**40

    def __init__(self, passes: int) -> None:
        self.left = passes

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise RemoteError(LOST)

    def close(self) -> None: ...


@pytest.fixture
def talker(tmp_path: Path) -> Path:
    return write_talker(tmp_path / "talker.gguf")


@pytest.fixture
def chat(talker: Path) -> Iterator[Chat]:
    chat = Chat(
        answer=opt.AnswerOptions(max_tokens=8, memory="off"),
        models=opt.ModelOptions(target=str(talker), draft="none", threads=1, ctx=400),
        drafting=opt.DraftOptions(),
        sampling=opt.SamplingOptions(temp=0.0, logit_bias=SILENT),
        markdown=False,
        kept=KeepOptions(log=True).begin(),
    )
    chat.load()
    yield chat
    chat.close()


class Script:
    """A person who says what was written down."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    def read(self, _beginning: str = "") -> str | None:
        return self._lines.pop(0) if self._lines else None


def logged() -> list[str]:
    with Log() as log:
        latest = log.latest()
    assert latest is not None
    return [turn["content"] for turn in latest.conversation.messages]


def said(chat: Chat, *lines: str) -> list[str]:
    converse(chat, Script(*lines))
    return [turn["content"] for turn in chat.session.messages]


def test_a_chat_goes_on_once_the_machine_is_there_again(
    chat: Chat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = said(chat, "hi")
    said(chat, "/reset")
    chat.session.target.remote = Machine(passes=5)  # type: ignore[assignment]
    question, cut = said(chat, "hi")
    assert (question, len(cut)) == ("hi", len(whole[1]) - 4)
    assert whole[1].startswith(cut)
    assert LOST in capsys.readouterr().err
    assert logged() == [question, cut]

    def gone(*_: object, **__: object) -> None:
        raise RemoteError("cannot reach far:1")

    with monkeypatch.context() as patch:
        patch.setattr("spec_cpu_cli.options.open_session", gone)
        assert said(chat, "/continue") == [question, cut]
    assert "cannot reach far:1" in capsys.readouterr().err
    question, longer = said(chat, "/continue")
    assert question == "hi"
    assert longer.startswith(cut)
    assert longer != cut


def test_a_run_keeps_what_was_said(
    talker: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Model.__init__

    def far(self: Model, path: Path, **how: object) -> None:
        made(self, path, **how)  # type: ignore[arg-type]
        self.remote = Machine(passes=4)  # type: ignore[assignment]

    monkeypatch.setattr(Model, "__init__", far)
    biases = [word for bias in SILENT for word in ("--logit-bias", bias)]
    options = ["-m", talker, "-d", "none", "--temp", 0, "-n", 9, "-t", 1, "-q", *biases]
    assert run_program(monkeypatch, "run", "hi", *options, "--log") == 1
    shown = capsys.readouterr()
    assert shown.err == f"spec-cpu: {LOST}\n"
    assert shown.out.strip()
    assert logged() == ["hi", shown.out.strip()]
