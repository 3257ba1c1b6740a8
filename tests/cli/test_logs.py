"""`--log`, `--continue` and `spec-cpu logs`."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from program import run_program
from spec_cpu_cli.chat.history import FileHistory, history_file
from tiny_talk import write_talker

from spec_cpu.conversations.log import log_file


class Done(NamedTuple):
    """What a run left behind."""

    code: int
    text: str
    err: str


Spec = Callable[..., Done]


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Spec:
    """Runs the program in this process."""

    def run(*args: object, stdin: str = "") -> Done:
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", stream)
        capsys.readouterr()
        code = run_program(monkeypatch, *args)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture(scope="module")
def talker(models: Path) -> Path:
    return write_talker(models / "logged.gguf")


@pytest.fixture
def asked(talker: Path) -> list[str]:
    """Options for an answer of a few characters."""
    silent = ["0=-inf", "1=-inf", "98=-inf", "99=-inf", "100=-inf"]
    biases = [word for bias in silent for word in ("--logit-bias", bias)]
    return ["-d", "none", "-t", "1", "-n", "5", "--temp", "0", "-q", *biases]


def kept(spec: Spec) -> list[list[str]]:
    """What was said in each conversation, the latest first."""
    found = json.loads(spec("logs", "list", "--json").text)
    return [[turn["content"] for turn in one["messages"]] for one in found]


def test_nothing_is_kept_unless_it_is_asked_for(
    spec: Spec, talker: Path, asked: list[str], own_cache: Path
) -> None:
    assert spec("run", "-m", talker, *asked, "hi").code == 0
    assert spec("chat", "-m", talker, *asked, "--memory", "off", stdin="hi\n").code == 0
    assert not Path(f"{own_cache}-data").exists()
    assert "there is no conversation in" in spec("logs", "list").text


def test_run_goes_on_with_the_latest_and_its_model(
    spec: Spec, talker: Path, asked: list[str]
) -> None:
    first = spec("run", "-m", talker, *asked, "--log", "--system", "Be brief.", "hi").text.strip()
    spec("run", "-m", talker, *asked, "another question, which is not kept")
    done = spec("run", *asked, "--continue", "and then?")
    assert done.code == 0, done.err
    second = done.text.strip()
    assert kept(spec) == [["Be brief.", "hi", first, "and then?", second]]
    talk = spec("chat", "-m", talker, *asked, "--system", "Be brief.", stdin="hi\nand then?\n")
    assert talk.text.split() == [first, second]


def test_another_model_may_go_on_and_it_is_said(
    spec: Spec, talker: Path, asked: list[str], tmp_path: Path
) -> None:
    other = write_talker(tmp_path / "other.gguf", noise=0.5)
    loud = [word for word in asked if word != "-q"]
    spec("run", "-m", talker, *asked, "--log", "hi")
    done = spec("run", "-m", other, *loud, "--continue", "and then?")
    assert "held with logged.gguf: other.gguf goes on" in done.err
    assert json.loads(spec("logs", "show", "--json").text)["models"]["name"] == "other.gguf"


def test_chat_keeps_its_conversations_and_goes_on_with_them(
    spec: Spec, talker: Path, asked: list[str]
) -> None:
    quiet = [*asked, "--memory", "off"]
    spec("chat", "-m", talker, *quiet, "--log", stdin="hi\n/reset\nwhy?\n")
    loud = [word for word in quiet if word != "-q"]
    done = spec("chat", *loud, "--continue", stdin="/continue\nand then?\n")
    assert "going on from: why?" in done.err
    latest, first = kept(spec)
    assert (first[0], latest[0], latest[2]) == ("hi", "why?", "and then?")
    assert (len(first[1]), len(latest[1])) == (5, 10)


def test_list_show_search_and_clear(spec: Spec, talker: Path, asked: list[str]) -> None:
    for question in ("why is the sky blue?", "and Mars?\nis it red?"):
        spec("run", "-m", talker, *asked, "--log", question)
    first, second = spec("logs", "list").text.splitlines()
    assert "and Mars? is it red?" in first
    assert "why is the sky blue?" in second
    assert "logged.gguf" in first
    assert len(spec("logs", "list", "-n", "1").text.splitlines()) == 1
    (found,) = spec("logs", "list", "-q", "SKY").text.splitlines()
    assert found == second
    assert "in which that was said" in spec("logs", "list", "-q", "Venus").text
    number = second.split()[0]
    assert "## user\n\nwhy is the sky blue?" in spec("logs", "show", number).text
    assert "and Mars?" in spec("logs", "show").text
    assert spec("logs", "path").text.strip().endswith("conversations.db")
    refused = spec("logs", "clear")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert len(kept(spec)) == 2
    assert "removed 2 conversations" in spec("logs", "clear", "--yes").text
    assert kept(spec) == []


def test_what_was_typed_goes_with_the_conversations(spec: Spec) -> None:
    FileHistory(history_file()).store_string("a secret")
    assert f"removed {history_file()}" in spec("logs", "clear", "--yes").text
    assert not history_file().exists()


def test_to_look_for_conversations_makes_no_file(spec: Spec) -> None:
    """Nor is it an error where none can be made."""
    assert spec("logs", "list").code == 0
    assert spec("logs", "list", "--json").text == "[]\n"
    assert "there is no conversation yet" in spec("logs", "show").err
    assert not log_file().exists()


@pytest.mark.parametrize(
    "args",
    [
        ["logs", "show"],
        ["logs", "show", "7"],
        ["run", "--continue", "hi"],
        ["chat", "--continue"],
        ["run", "--raw", "--log", "hi"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_one_line(spec: Spec, args: list[str]) -> None:
    done = spec(*args)
    assert (done.code, done.text) == (2, "")
    assert len(done.err.splitlines()) == 1


def test_an_answer_is_given_though_it_cannot_be_kept_any_more(
    spec: Spec, talker: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        from spec_cpu.errors import SpecCpuError

        raise SpecCpuError("cannot use the log: the disk is full")

    monkeypatch.setattr("spec_cpu.conversations.log.Log.keep", full)
    done = spec("run", "-m", talker, *asked, "--log", "hi")
    assert (done.code, len(done.text.strip())) == (1, 5)
    assert done.err == "spec-cpu: cannot use the log: the disk is full\n"


def test_each_answer_keeps_the_model_that_gave_it(
    spec: Spec, talker: Path, models: Path, asked: list[str]
) -> None:
    other = models / "another.gguf"
    other.write_bytes(talker.read_bytes())
    spec("run", "-m", talker, *asked, "--log", "hi")
    spec("run", "-m", other, *asked, "--continue", "and then?")
    spec("run", "-m", talker, *asked, "--continue", "and now?")
    (found,) = json.loads(spec("logs", "list", "--json").text)
    names = [talker.name, other.name, talker.name]
    assert [name for name in found["authors"] if name] == names
    shown = spec("logs", "show").text
    assert shown.count(f"assistant ({other.name})") == 1


def test_a_log_of_the_first_version_is_read_and_goes_on(
    spec: Spec, talker: Path, asked: list[str]
) -> None:
    spec("run", "-m", talker, *asked, "--log", "hi")
    before = kept(spec)
    with closing(sqlite3.connect(log_file())) as database:
        database.executescript("ALTER TABLE turns DROP COLUMN author; PRAGMA user_version = 1;")
    assert kept(spec) == before
    assert spec("run", *asked, "--continue", "and then?").code == 0
    (found,) = json.loads(spec("logs", "list", "--json").text)
    assert found["authors"] == [None, talker.name] * 2
