"""The commands of a chat, each as it is used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from spec_cpu_cli import options as opt
from spec_cpu_cli.chat.commands import TABLE
from spec_cpu_cli.chat.loop import converse
from spec_cpu_cli.chat.state import Chat
from spec_cpu_cli.keeping import KeepOptions
from tiny_talk import write_talker

from spec_cpu.conversations.log import Log

END = 100  # the token that ends an answer


class Script:
    """A person who says what was written down, and changes nothing at the prompt."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self._lines = list(lines)
        self.offered: list[str] = []

    def read(self, beginning: str = "") -> str | None:
        self.offered.append(beginning)
        return self._lines.pop(0) if self._lines else None


Say = Callable[..., Any]


@pytest.fixture(scope="module")
def talker(models: Path) -> Path:
    return write_talker(models / "talker.gguf")


@pytest.fixture
def chat(talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    """Answers of 8 characters, that never end by themselves."""
    monkeypatch.chdir(tmp_path)
    silent = ["0=-inf", "1=-inf", f"{END}=-inf", "98=-inf", "99=-inf"]
    chat = Chat(
        answer=opt.AnswerOptions(max_tokens=8, memory="off"),
        models=opt.ModelOptions(target=str(talker), draft="none", threads=1, ctx=400),
        drafting=opt.DraftOptions(draft_tokens=4),
        sampling=opt.SamplingOptions(temp=0.0, logit_bias=silent),
        markdown=False,
        kept=None,
    )
    chat.load()
    yield chat
    chat.close()


@pytest.fixture
def say(chat: Chat, capsys: pytest.CaptureFixture[str]) -> Say:
    """Says some lines; what was written to standard error."""

    def run(*lines: str) -> str:
        capsys.readouterr()
        converse(chat, Script(lines))
        return capsys.readouterr().err

    return run


def said(chat: Chat) -> list[str]:
    return [turn["content"] for turn in chat.session.messages]


def test_help_names_every_command_and_fits_a_usual_window(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spec_cpu_cli.terminal.size", lambda _: os.terminal_size((80, 24)))
    shown, keys = say("/help"), say("/help keys")
    for command in TABLE:
        assert f"/{command.name} {command.argument}".strip() in shown
        assert command.help.split()[0] in shown
    assert "Ctrl-D" in keys
    for page in (shown, keys):
        assert page.count("\n") <= 24 - 3, "the prompts before and after it, and a blank line"
    assert "there is /help, and /help keys" in say("/help me")


@pytest.mark.parametrize(
    "typed", ["temp 0.25", "temp=0.25", "TEMP 0.25", "--temp 0.25", "Temp = 0.25"]
)
def test_a_setting_is_understood_however_it_is_written(say: Say, typed: str) -> None:
    assert "temp is 0.25 from now on" in say(f"/set {typed}")


def test_no_seed_is_called_so_in_words(say: Say) -> None:
    assert "seed is 7 from now on" in say("/set seed 7")
    assert "seed is a new one from now on" in say("/set seed none")


def test_a_folder_is_no_file_to_save_to(say: Say, tmp_path: Path) -> None:
    (tmp_path / "adir").mkdir()
    assert "adir is a folder: give the name of a file" in say("hi", "/save adir")


def test_every_command_is_one_entry_with_a_help_line() -> None:
    assert len({command.name for command in TABLE}) == len(TABLE)
    for command in TABLE:
        assert command.help.endswith((".", "0.2"))
        assert len(command.help) < 100


def test_an_answer_that_is_cut_says_so_and_goes_on(chat: Chat, say: Say) -> None:
    shown = say("/set max-tokens -1", "/set max-tokens", "/set max-tokens 24", "hi")
    assert "max-tokens is -1" in shown
    whole = said(chat)
    shown = say("/reset", "/set max-tokens 8", "hi", "/continue", "/continue")
    assert said(chat) == whole
    assert shown.count("cut at 8 tokens") == 3


def test_an_answer_that_ends_does_not_go_on(chat: Chat, say: Say) -> None:
    shown = say("hi", f"/set logit-bias {END}=99", "/continue", "/continue", "so")
    assert len(said(chat)) == 2
    assert shown.count("the model says nothing more") == 2
    assert shown.count("nothing was cut") == 1


def test_undo_takes_the_last_question_back_and_its_cache_stays(chat: Chat, say: Say) -> None:
    say("hi", "and then?")
    whole = said(chat)
    assert "taken back: why?" in say("why?", "/undo")
    assert said(chat) == whole
    say("/undo", "and then?")
    assert said(chat) == whole
    stats = chat.session.stats
    assert stats.reused_tokens > stats.prompt_tokens / 2


def test_retry_answers_again_with_other_draws(chat: Chat, say: Say) -> None:
    say("/set temp 1.5", "/set seed 3", "hi")
    first, seed = said(chat), chat.session.seed
    say("/retry")
    assert seed == 3 != chat.session.seed
    assert said(chat) != first
    assert len(said(chat)) == 2
    say("/undo", "hi")
    assert said(chat) == first, "the seed that was set is that of all other answers"
    assert "always at temperature 0" in say("/set temp 0", "/retry", "/retry")


def test_edit_answers_another_question_in_place_of_the_last(chat: Chat, say: Say) -> None:
    say("hi", "and tehn?", "/edit and then?")
    assert said(chat)[2] == "and then?"
    expected = said(chat)
    say("/reset", "hi", "and then?")
    assert said(chat) == expected


def test_edit_alone_offers_the_last_question_at_the_prompt(chat: Chat) -> None:
    for typed, kept in (("", "hi"), ("hello", "hello")):
        script = Script(("hi", "/edit", typed))
        converse(chat, script)
        assert script.offered == ["", "", "hi", ""]
        assert said(chat)[-2] == kept
    assert len(said(chat)) == 4


def test_a_message_that_does_not_fit_can_be_sent_later(chat: Chat, say: Say) -> None:
    long = "x" * 220
    shown = say("hi " * 30, "so", long)
    assert "/drop" in shown
    assert len(said(chat)) == 4
    assert "forgotten" in say("/drop", "/retry")
    assert said(chat)[:1] + said(chat)[2:3] == ["so", long]


def test_what_cannot_be_answered_in_place_of_the_last_leaves_it(chat: Chat, say: Say) -> None:
    say("hi", "so")
    before = said(chat)
    say(f"/edit {'x' * 500}")
    assert said(chat) == before


def test_a_full_context_is_said_and_the_oldest_can_be_dropped(chat: Chat, say: Say) -> None:
    say("one " * 20, "/set max-tokens 400")
    assert "is full: /drop" in say("two")
    before = said(chat)[-1]
    say("/drop", "/set max-tokens 5", "/continue")
    assert said(chat)[0] == "two"
    assert said(chat)[1].startswith(before)
    assert len(said(chat)[1]) == len(before) + 5


def test_the_system_prompt_can_be_changed(chat: Chat, say: Say) -> None:
    shown = say("hi", "/system", "/system Be brief.", "/reset", "hi", "/system none", "/system")
    assert [line for line in shown.splitlines() if "system" in line] == [
        "system prompt: none",
        "system prompt: Be brief.",
        "system prompt: none",
        "system prompt: none",
    ]
    assert said(chat)[0] == "hi"
    say("/system Be kind.", "/reset")
    assert said(chat) == ["Be kind."]


def test_every_setting_is_shown_and_can_be_set(chat: Chat, say: Say) -> None:
    rows = [line.split(None, 1) for line in say("/set").splitlines()]
    for name, value in rows:
        shown = say(f"/set {name} {value}", f"/set {name}")
        assert shown.splitlines() == [f"{name} is {value} from now on", f"{name} is {value}"]
    assert {"temp", "top-k", "top-p", "min-p", "seed", "max-tokens"} <= {name for name, _ in rows}
    say("/set temp 0.25", "/set top_k 7")
    assert (chat.sampling.temp, chat.sampling.top_k) == (0.25, 7)


def test_settings_hold_for_what_follows(chat: Chat, say: Say) -> None:
    say("hi", "/reset", "/set max-tokens 3", "hi")
    assert len(said(chat)[1]) == 3


def test_a_file_goes_with_the_next_message_alone(chat: Chat, say: Say, tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("one\n  two\n", encoding="utf-8")
    (tmp_path / "c.txt").write_text("three", encoding="utf-8")
    shown = say("/file 'a b.txt'", f"/file {tmp_path}/c.txt", "read this", "and then?")
    assert "a b.txt, c.txt" in shown
    assert said(chat)[0] == "read this\n\none\n  two\n\n\nthree"
    assert said(chat)[2] == "and then?"


def test_tokens_says_how_much_is_used(chat: Chat, say: Say) -> None:
    assert say("/tokens").startswith("0 of 400 tokens")
    shown = say("hi", "/tokens").splitlines()[-1]
    used = int(shown.split()[0])
    say("x")
    assert chat.session.stats.prompt_tokens == used + 1


def test_what_is_saved_is_loaded_with_its_settings(chat: Chat, say: Say, tmp_path: Path) -> None:
    say("/system Be brief.", "hi", "/set temp 0.5", "/set seed 7", "/save talk.json")
    expected, settings = said(chat), chat.sampling
    saved = json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))
    assert saved["models"]["name"] == "talker.gguf"
    shown = say("/reset", "/system none", "/set temp 0", "/set seed none", "/load talk.json")
    assert "loaded 3 turns" in shown
    assert "held with" not in shown
    assert (said(chat), chat.sampling, chat.answer.system) == (expected, settings, "Be brief.")
    say("/continue")
    assert said(chat)[2].startswith(expected[2])
    assert len(said(chat)[2]) == 16


def test_a_conversation_of_another_model_says_so(
    chat: Chat, say: Say, tmp_path: Path, models: Path
) -> None:
    say("hi", "/save talk.json")
    saved = json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))
    saved["models"] |= {"fingerprint": "0", "name": "other.gguf"}
    (tmp_path / "other.json").write_text(json.dumps(saved), encoding="utf-8")
    assert "held with other.gguf: talker.gguf goes on" in say("/load other.json")


@pytest.mark.parametrize("settings", [{"temp": "warm"}, {"nothing": 1}, {"max_tokens": 0}])
def test_settings_that_make_no_sense_are_not_loaded(
    chat: Chat, say: Say, tmp_path: Path, settings: dict[str, object]
) -> None:
    say("hi", "/save talk.json")
    saved = json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))
    saved["settings"] |= settings
    (tmp_path / "bad.json").write_text(json.dumps(saved), encoding="utf-8")
    before = (said(chat), chat.sampling, chat.answer)
    assert say("/load bad.json").startswith("spec-cpu: ")
    assert (said(chat), chat.sampling, chat.answer) == before


def test_what_drafts_can_be_chosen(chat: Chat, say: Say, models: Path) -> None:
    draft = write_talker(models / "talker-draft.gguf", noise=0.15)
    say("hi")
    expected = said(chat)
    shown = say("/draft", "/draft ngram", f"/draft {draft}", "/undo", "hi")
    assert "guessing ahead: ngram" in shown
    assert chat.session.stats.drafted > 0
    assert said(chat) == expected
    session = chat.session
    shown = say("/draft none", "/undo", "hi", "/draft", f"/draft {draft}")
    assert shown.splitlines()[-2] == "guessing ahead: none"
    assert chat.session is session, "nothing was loaded for that"
    assert session.stats.drafted == 0
    other = tiny.write_llama(models / "no-relative.gguf", n_vocab=64, scale=3)
    assert "spec-cpu: " in say(f"/draft {other}")
    assert not chat.session.closed
    assert "guessing ahead: talker-draft" in say("/draft")
    say("so")
    assert len(said(chat)) == 4


def test_a_draft_model_alone_needs_no_memory(chat: Chat, say: Say, models: Path) -> None:
    """The memory of a chat is there for what the text itself says."""
    draft = write_talker(models / "talker-draft.gguf", noise=0.15)
    chat.answer = replace(chat.answer, memory=None)
    assert "no such file: nothing.gguf" in say("/draft nothing.gguf")
    assert "guessing ahead: talker-draft" in say(f"/draft {draft}")
    assert "guessing ahead: ngram" in say("/draft ngram")


def test_a_memory_that_was_asked_for_is_not_left_out(chat: Chat, say: Say, models: Path) -> None:
    draft = write_talker(models / "talker-draft.gguf", noise=0.15)
    say("/draft ngram")
    chat.answer = replace(chat.answer, memory="notes.memory")
    assert "--memory needs --draft ngram" in say(f"/draft {draft}")
    assert not chat.session.closed


def test_what_is_said_is_kept_if_it_is_to_be(chat: Chat, say: Say) -> None:
    say("hi")
    with Log() as log:
        assert log.find() == []
    chat.kept = KeepOptions(log=True).begin()
    say("so", "/undo", "why?", "/reset", "hello", "/system Be brief.")
    with Log() as log:
        kept = [[turn["content"] for turn in one.conversation.messages] for one in log.find()]
    assert [one[0] for one in kept] == ["Be brief.", "hi"]
    assert kept[1][2] == "why?"
    assert kept[0] == said(chat)


def test_a_log_that_cannot_be_used_loses_no_answer(
    chat: Chat, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.kept = KeepOptions(log=True).begin()
    monkeypatch.setenv("SPEC_CPU_DATA", "/dev/null/nowhere")
    assert "spec-cpu: cannot open the log" in say("hi")
    assert len(said(chat)) == 2


def test_quiet_says_nothing_but_what_was_asked_for(chat: Chat, say: Say) -> None:
    chat.models = replace(chat.models, quiet=True)
    assert say("hi", "/continue") == ""


@pytest.mark.parametrize("command", [one.name for one in TABLE if not one.argument])
def test_words_that_a_command_does_not_take_are_told(chat: Chat, say: Say, command: str) -> None:
    say("hi")
    before = said(chat)
    shown = say(f"/{command} 3 of them")
    assert f"/{command} takes nothing after it, not '3 of them'" in shown
    assert said(chat) == before
    assert not chat.left


def test_more_than_there_is_cannot_be_dropped(chat: Chat, say: Say) -> None:
    say("one", "two", "three")
    before = said(chat)
    assert "there are 2 older than the last question and its answer, not 99: /drop 2" in say(
        "/drop 99"
    )
    assert said(chat) == before
    say("/drop 2")
    assert said(chat)[0] == "three"


def test_another_file_is_written_over_only_when_that_is_said(
    chat: Chat, say: Say, tmp_path: Path
) -> None:
    say("one", "/save a.json", "two", "/save a.json")  # its own file
    first = (tmp_path / "a.json").read_text()
    assert json.loads(first)["messages"] == chat.session.messages
    say("/reset", "three")
    assert "a.json is there already: /save! a.json writes over it" in say("/save a.json")
    assert (tmp_path / "a.json").read_text() == first
    say("/save! a.json", "four", "/save a.json")
    assert json.loads((tmp_path / "a.json").read_text())["messages"] == chat.session.messages


def test_what_the_command_line_gave_stays_when_a_conversation_is_loaded(
    chat: Chat, say: Say
) -> None:
    say("/set temp 0.5", "/system Be brief.", "hi", "/save a.json", "/set max-tokens 5")
    chat.given = frozenset({"max_tokens", "system"})
    chat.set_system("Be kind.")
    shown = say("/load a.json")
    assert "but for max-tokens, which you gave" in shown
    assert (chat.answer.max_tokens, chat.sampling.temp) == (5, 0.5)
    assert said(chat)[0] == "Be kind."


def test_what_failed_is_taken_back_alone(chat: Chat, say: Say) -> None:
    say("hi")
    before = said(chat)
    shown = say("x" * 500)
    assert "/undo" in shown
    assert "/drop" in shown
    assert chat.failed
    assert "taken back: xxx" in say("/undo")
    assert said(chat) == before
    assert chat.unsent is None
    say("/undo")
    assert said(chat) == []


def test_a_file_stays_until_there_is_an_answer(chat: Chat, say: Say, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("y" * 300)
    (tmp_path / "b.txt").write_text("z" * 20)
    say("/file a.txt", "/file b.txt")
    assert "/file -NAME" in say("x" * 200)
    assert "a.txt, b.txt" in say("/file")
    assert "left out" in say("/file -a.txt")
    say("/retry")
    assert said(chat)[0].endswith("x\n\n" + "z" * 20)
    assert "no file" in say("/file")


def test_a_file_that_never_fits_is_refused(chat: Chat, say: Say, tmp_path: Path) -> None:
    (tmp_path / "huge.txt").write_text("y" * 500)
    assert "the context holds 400" in say("/file huge.txt")
    assert chat.attachments == []


def test_a_conversation_that_is_not_saved_is_not_dropped_unasked(chat: Chat, say: Say) -> None:
    say("hi", "/save one.json", "so")
    before = said(chat)
    assert "/load! one.json" in say("/load one.json")
    assert said(chat) == before
    say("/load! one.json")
    assert len(said(chat)) == 2
    say("/load one.json")
    assert len(said(chat)) == 2
