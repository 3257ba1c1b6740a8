"""`spec-cpu chat`: turns, the cache that stays, commands, Ctrl-C."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Models, Program, Result

ON = ["--logit-bias", "2=-inf"]  # without the token that ends an answer
SHORT = [*ON, "--seed", "1", "-n", "20", "--logit-bias", "98=-inf"]  # nor newlines
PROMPT = r"\x1b\[\?2004h"  # a paste is to be marked as one: a message is waited for
ENDLESS = [*ON, "--seed", "1", "-n", "60000", "-c", "65536"]


def _talk(program: Program, *args: str, lines: list[str], code: int = 0) -> Result:
    done = program("chat", *args, stdin="".join(f"{line}\n" for line in lines))
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    return done


def _read(stats: str) -> list[tuple[int, int, int]]:
    """Of each /stats: tokens written, tokens of prompts, and how many of these were kept."""
    lines = re.findall(
        r"^(\d+) tokens in .*prompt: (\d+) tokens(?:, (\d+) of them kept)?", stats, re.M
    )
    return [(int(written), int(prompt), int(kept or 0)) for written, prompt, kept in lines]


def _rendered(*turns: tuple[str, str]) -> int:
    """The length of a conversation whose last answer is to come: a character a token."""
    text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)
    return len(f"{text}<|im_start|>assistant\n") + 2  # <s>, and a space in front


def test_answers_go_to_standard_output_and_all_else_to_standard_error(
    program: Program, readable: Models
) -> None:
    done = _talk(program, *readable.pair, *SHORT, lines=["hi", "", "and then?", "/stats", "/exit"])
    answers = done.text.splitlines()
    assert [len(answer) for answer in answers] == [20, 20]
    assert "/help" in done.err
    assert done.err.count("20 tokens, ") == 2
    assert "\x1b" not in done.err


def test_the_first_answer_is_that_of_run(program: Program, readable: Models) -> None:
    chat = _talk(program, *readable.pair, *SHORT, "--system", "Be brief.", lines=["hi"])
    run = program("run", *readable.pair, *SHORT, "--system", "Be brief.", "hi")
    assert chat.out == run.out


def test_a_turn_reads_what_was_said_before_from_the_cache(
    program: Program, readable: Models
) -> None:
    questions = ["tell me a long story " * 10, "and then?", "why?"]
    lines = [line for question in questions for line in (question, "/stats")]
    done = _talk(program, *readable.pair, *SHORT, lines=lines)
    answers = done.text.splitlines()
    assert len(answers) == 3
    turns: list[tuple[str, str]] = []
    known = 0
    for question, answer, (_, prompt, kept) in zip(
        questions, answers, _read(done.err), strict=True
    ):
        turns.append(("user", question.rstrip()))
        assert prompt == _rendered(*turns)
        assert kept == known
        known = prompt + len(answer) - 1  # the last token was never fed
        turns.append(("assistant", answer))
    assert kept > 0.8 * prompt


def test_reset_begins_a_new_conversation(program: Program, readable: Models) -> None:
    lines = ["hi", "/stats", "and then?", "/reset", "hi", "/stats", "/save after.md"]
    done = _talk(program, *readable.pair, *SHORT, "--system", "Be brief.", lines=lines)
    first, again = _read(done.err)
    system = ("system", "Be brief.")
    assert first == (20, _rendered(system, ("user", "hi")), 0)
    assert again[:2] == first[:2]
    assert "a new conversation" in done.err
    saved = (program.home / "after.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", saved, re.M) == ["system", "user", "assistant"]


def test_stats_show_speed_and_acceptance(program: Program, readable: Models) -> None:
    done = _talk(program, *readable.pair, *SHORT, lines=["/stats", "hi", "/stats"], code=1)
    before, _, after = done.err.partition("nothing was answered yet")
    assert "accepted" not in before
    for part in (
        r"\d tok/s",
        r"tokens per step",
        r"asking what may come next",
    ):
        assert re.search(part, after), part


def test_save_writes_the_conversation(program: Program, readable: Models) -> None:
    lines = ["hi", "and then?", "/save said so.md", "/save", "/save no/such/folder"]
    done = _talk(program, *readable.pair, *SHORT, lines=lines, code=1)
    one, two = done.text.splitlines()
    saved = (program.home / "said so.md").read_text(encoding="utf-8")
    heading, *said = [part.strip() for part in re.split(r"^## \w+\n", saved, flags=re.M)]
    assert "readable-target" in heading
    assert said == ["hi", one.strip(), "and then?", two.strip()]
    assert "said so.md" in done.err
    assert "needs a file name" in done.err
    assert "cannot write no/such/folder" in done.err
    assert sorted(path.name for path in program.home.iterdir() if path.is_file()) == ["said so.md"]


@pytest.mark.parametrize("leave", ["/exit", "/quit", "exit", "quit"])
def test_exit_ends_it(program: Program, readable: Models, leave: str) -> None:
    done = _talk(program, *readable.pair, *SHORT, lines=["hi", leave, "are you still there?"])
    assert len(done.text.splitlines()) == 1


def test_a_last_line_without_a_newline_is_answered(program: Program, readable: Models) -> None:
    done = program("chat", *readable.plain, *SHORT, "-q", stdin="hi")
    assert (done.code, len(done.text), done.err) == (0, 21, "")


@pytest.mark.slow
def test_without_a_draft_one_line_says_how_to_get_one(program: Program, readable: Models) -> None:
    done = _talk(program, *readable.alone, *SHORT, lines=["hi", "and then?"])
    assert done.err.count("--draft") == 1


def test_a_turn_that_does_not_fit_leaves_the_conversation_alive(
    program: Program, readable: Models
) -> None:
    lines = ["hi", "x" * 400, "/reset", "hi"]
    done = _talk(program, *readable.pair, *SHORT, "-c", "200", lines=lines, code=1)
    assert [len(answer) for answer in done.text.splitlines()] == [20, 20]
    assert "the context holds 200" in done.err


def test_a_full_context_is_said_to_be_full(program: Program, readable: Models) -> None:
    done = _talk(program, *readable.pair, *SHORT, "-c", "60", lines=["hi"])
    assert len(done.text) == 60 - _rendered(("user", "hi")) + 1
    assert "the context of 60 tokens is full: /reset" in done.err


def test_ctrl_c_stops_the_answer_and_not_the_program(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("chat", *readable.pair, *ENDLESS)
    at = terminal.wait_for(PROMPT)
    terminal.type("hi\r")
    at = terminal.wait_for(r" \d\d+ tokens", after=at)
    terminal.type("\x03")
    at = terminal.wait_for(PROMPT, after=at)  # asks for the next turn
    assert terminal.child.poll() is None
    terminal.type("and then?\r")
    at = terminal.wait_for(r" \d\d+ tokens", after=at)  # answers it
    terminal.type("\x03")
    at = terminal.wait_for(PROMPT, after=at)
    terminal.type("/save said.md\r")
    at = terminal.wait_for("saved 4 turns", after=at)
    terminal.type("/exit\r")
    assert terminal.finish().code == 0
    saved = (program.home / "said.md").read_text(encoding="utf-8")
    answers = re.split(r"^## assistant\n", saved, flags=re.M)[1:]
    assert all(len(answer.partition("\n## ")[0].strip()) > 3 for answer in answers)
    assert b"Traceback" not in terminal.shown


def test_ctrl_c_at_the_prompt_does_not_leave_and_ctrl_d_does(
    program: Program, readable: Models
) -> None:
    terminal = program.on_terminal("chat", *readable.pair, *SHORT)
    at = terminal.wait_for(PROMPT)
    terminal.type("half a question")
    terminal.wait_for("half a question", after=at)
    terminal.type("\x03")
    at = terminal.wait_for("/exit or Ctrl-D", after=at)
    at = terminal.wait_for(PROMPT, after=at)
    terminal.type("/stats\r")
    at = terminal.wait_for("nothing was answered yet", after=at)
    at = terminal.wait_for(PROMPT, after=at)
    terminal.type("\x04")
    assert terminal.finish().code == 0
    assert b"Traceback" not in terminal.shown


def test_a_conversation_on_a_terminal(program: Program, readable: Models) -> None:
    piped = _talk(program, *readable.pair, *SHORT, lines=["hi", "and then?"])
    terminal = program.on_terminal("chat", *readable.pair, *SHORT, "--quiet")
    for question, answer in zip(["hi", "and then?"], piped.text.splitlines(), strict=True):
        terminal.type(f"{question}\r")
        terminal.wait_for(re.escape(answer.rstrip()) + "\r\n")
    terminal.type("/exit\r")
    assert terminal.finish().code == 0


def test_answers_may_go_to_a_file_while_keys_come_from_a_terminal(
    program: Program, readable: Models
) -> None:
    piped = _talk(program, *readable.pair, *SHORT, lines=["hi"])
    terminal = program.on_terminal("chat", *readable.pair, *SHORT, on="ie")
    at = terminal.wait_for(PROMPT)
    terminal.type("hi\r")
    at = terminal.wait_for("20 tokens", after=at)
    terminal.wait_for(PROMPT, after=at)
    terminal.type("exit\r")
    done = terminal.finish()
    assert (done.code, done.out) == (0, piped.out)


@pytest.mark.slow
@pytest.mark.usefixtures("default_by_name")
def test_the_default_pair_talks_and_keeps_its_cache(program: Program) -> None:
    lines = ["Name a colour, please.", "/stats", "And another one?", "/stats"]
    done = _talk(program, "-t", "1", "-n", "8", "--temp", "0", lines=lines)
    first, both = _read(done.err)
    assert first[2] == 0
    assert both[2] >= first[1]  # the whole first prompt at the least
    assert "no chat template" not in done.err


def test_a_pipe_is_told_of_what_could_not_be_answered(program: Program, readable: Models) -> None:
    options = [*readable.plain, "-c", "256", "-n", "4"]
    assert program("chat", *options, stdin="hi\n").code == 0
    done = program("chat", *options, stdin="x" * 900 + "\nhi\n")
    assert done.code == 1
    assert done.out
