"""`spec-cpu run`: its text, what the options do, what is said on standard error."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import ASKED, ENDLESS, PATIENCE, TOKENS

if TYPE_CHECKING:
    from conftest import Models, Program


# The text.


def test_piped_output_is_the_text_and_nothing_else(
    cli: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    done = cli("run", *readable.pair, *ASKED)
    assert done.code == 0
    assert done.text == drafted["text"] + "\n"
    assert "\x1b" not in done.err


@pytest.mark.slow
def test_text_that_is_not_ascii_comes_out_the_same(
    cli: Program, tiny_target: Path, tiny_draft: Path
) -> None:
    # These models write bytes at random: most are no UTF-8, and become replacement characters.
    models = ["-m", str(tiny_target), "-d", str(tiny_draft)]
    args = [*models, "-t", "1", "--seed", "3", "-n", "200", "why?"]
    text = cli.answer(*args)["text"]
    assert "\N{REPLACEMENT CHARACTER}" in text
    assert cli("run", *args).out == f"{text}\n".encode()


@pytest.mark.parametrize("kind", ["plain", "pair"])
def test_text_is_written_as_it_comes(program: Program, readable: Models, kind: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps writes apart
    with ours:
        with theirs:
            child = program.start("run", *getattr(readable, kind), *ASKED, stdout=theirs.fileno())
        ours.settimeout(PATIENCE)
        writes = []
        while data := ours.recv(1 << 16):
            writes.append(data)
    assert child.wait() == 0
    if kind == "plain":
        assert [len(data) for data in writes[:TOKENS]] == [1] * TOKENS
    else:
        assert max(map(len, writes)) <= 5  # k + 1
        assert sum(map(len, writes)) >= TOKENS


def test_the_first_words_are_there_long_before_the_last(program: Program, readable: Models) -> None:
    child = program.start("run", *readable.pair, *ENDLESS)
    assert child.stdout
    for _ in range(5):
        assert child.stdout.read(20)
    assert child.poll() is None


@pytest.mark.parametrize("rule", ["block", "token"])
def test_the_same_seed_and_settings_give_the_same_text(
    cli: Program, readable: Models, rule: str
) -> None:
    args = [*readable.pair, "--rule", rule, "-n", "60", "--ignore-eos", "why?"]
    first = cli.answer(*args)  # draws a seed, and says which
    again = cli.answer(*args, "--seed", str(first["seed"]))
    other = cli.answer(*args, "--seed", str(first["seed"] + 1))
    assert first["rule"] == again["rule"] == other["rule"] == rule
    assert first["text"] == again["text"] != other["text"]


def test_greedy_text_needs_no_seed(cli: Program, readable: Models) -> None:
    texts = {
        cli.answer(*models, "--temp", "0", "-n", "60", "--ignore-eos", "--seed", seed, "why?")[
            "text"
        ]
        for models in (readable.plain, readable.pair)
        for seed in ("1", "2")
    }
    assert len(texts) == 1


# What the options do.


def test_a_prompt_comes_as_an_argument_from_a_file_or_piped(
    program: Program, readable: Models
) -> None:
    file = program.home / "prompt.txt"
    file.write_text("why is it so?", encoding="utf-8")
    args = [*readable.plain, "--seed", "1", "-n", "20"]
    texts = [
        program.answer(*args, "why is it so?"),
        program.answer(*args, "--file", file),
        program.answer(*args, stdin="why is it so?"),
        program.answer(*args, "--file", "-", stdin="why is it so?"),
    ]
    assert len({text["text"] for text in texts}) == 1
    assert len({text["prompt_tokens"] for text in texts}) == 1


def test_argument_and_files_make_one_prompt(program: Program, readable: Models) -> None:
    one, two = program.home / "one", program.home / "two"
    one.write_text("first", encoding="utf-8")
    two.write_text("second", encoding="utf-8")
    args = [*readable.plain, "--seed", "1", "-n", "20"]
    together = program.answer(*args, "say", "-f", one, "-f", two)
    assert together["text"] == program.answer(*args, "say\n\nfirst\n\nsecond")["text"]


def test_prompt_tokens_tell_what_the_model_read(cli: Program, readable: Models) -> None:
    def read(*args: str) -> int:
        count = cli.answer(*readable.plain, "-n", "1", "why?", *args)["prompt_tokens"]
        assert isinstance(count, int)
        return count

    # A character a token, after the beginning of the text and a space.
    turns = {role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant")}
    asked = f"{turns['user']}why?<|im_end|>\n{turns['assistant']}"
    assert read("--raw") == 2 + len("why?")
    assert read() == 2 + len(asked)
    assert read("--system", "Be brief.") == 2 + len(
        f"{turns['system']}Be brief.<|im_end|>\n{asked}"
    )


def test_stop_ends_the_text_before_it(
    cli: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    text: str = drafted["text"]
    stops = [text[50:53], text[120:124]]
    stopped = cli.answer(*readable.pair, *ASKED, "--stop", stops[1], "--stop", stops[0])
    assert stopped["text"] == text[: min(map(text.find, stops))]
    assert stopped["finish"] == "stop"
    assert 0 < stopped["tokens"] < TOKENS


def test_a_model_may_stop_by_itself_unless_told_not_to(cli: Program, readable: Models) -> None:
    args = [*readable.pair, "--logit-bias", "2=30", "--seed", "1", "-n", "12", "why?"]  # 2 ends
    stopped = cli.answer(*args)
    assert (stopped["finish"], stopped["tokens"], stopped["text"]) == ("stop", 1, "")
    went_on = cli.answer(*args, "--ignore-eos")
    assert (went_on["finish"], went_on["tokens"], len(went_on["text"])) == ("length", 12, 12)


def test_the_context_ends_an_answer(cli: Program, readable: Models) -> None:
    for models in (readable.plain, readable.pair):
        done = cli.answer(*models, "--raw", "-c", "40", "--ignore-eos", "why?")
        assert done["finish"] == "context"
        assert done["prompt_tokens"] + done["tokens"] == 40


def test_sampling_flags_reach_the_sampler(cli: Program, readable: Models) -> None:
    args = [*readable.pair, "-n", "40", "--ignore-eos", "--seed", "1", "why?"]
    greedy = cli.answer(*args, "--temp", "0")["text"]
    narrow = (["--top-k", "1"], ["--top-p", "0.0001"], ["--min-p", "1"], ["--temp", "0.001"])
    for flags in narrow:
        assert cli.answer(*args, *flags)["text"] == greedy, flags
    wide = cli.answer(*args, "--temp", "0", "--frequency-penalty", "50", "--repeat-last-n", "-1")
    assert len(set(wide["text"])) == 40  # nothing twice
    for flags in (["--presence-penalty", "90"], ["--repeat-penalty", "9"]):
        assert cli.answer(*args, "--temp", "0", *flags)["text"] != greedy, flags


def test_k_is_how_many_are_drafted(cli: Program, readable: Models) -> None:
    one = cli.answer(*readable.pair, "-k", "1", *ASKED)
    assert one["k"] == 1
    assert len(one["accepted_by_position"]) == 1
    assert one["drafted"] in (one["cycles"] - 1, one["cycles"])  # none where one token is missing
    none = cli.answer(*readable.pair, "--draft-tokens", "0", *ASKED)
    assert (none["k"], none["drafted"], none["alpha"]) == (0, 0, None)


def test_catalogue_names_are_taken_and_unknown_ones_refused(cli: Program, readable: Models) -> None:
    for args in (["--pair", "no-such"], ["-m", "no-such"], [*readable.plain, "-d", "no-such"]):
        done = cli("run", *args, "why?")
        assert done.code == 2
        assert "no-such" in done.err
        assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_the_default_pair_needs_no_options(cli: Program, default_by_name: Path) -> None:
    """The target drafts for itself, through a head that comes with the package."""
    done = cli.answer("-t", "1", "-n", "6", "--temp", "0", "What is the capital of France?")
    assert done["tokens"] == 6
    assert done["text"].strip()
    assert [one for one in done["notices"] if "busy" not in one] == []  # the machine may be
    assert Path(done["target"]["file"]).name == default_by_name.name
    assert Path(done["draft"]["file"]).name == "smollm2-135m-eagle.gguf"
    assert done["source"] == "ngram,eagle"
    assert done["target"]["quantization"] == "Q4_1"
    assert done["draft"]["quantization"] == "Q4_0"
    assert done["target"]["parameters"] == 134515008
    assert done["target"]["bytes"] == pytest.approx(default_by_name.stat().st_size, rel=0.05)


# Standard error.


def test_a_summary_follows_the_text(
    cli: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    err = cli("run", *readable.pair, *ASKED).err
    assert f"{TOKENS} tokens in " in err
    assert f"prompt: {drafted['prompt_tokens']} tokens" in err
    assert f"{drafted['alpha']:.0%} of the guesses accepted" in err
    assert f"{drafted['tokens_per_cycle']:.1f} tokens per step" in err
    assert re.search(r"[\d.]+ tok/s", err)
    assert err.count("%") == 1
    assert len(err.splitlines()) == 4  # where it was cut, an empty one, and two


def test_verbose_says_what_each_number_is(
    cli: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    err = cli("run", *readable.pair, *ASKED, "--verbose").err
    for value, meaning in (
        (f"{drafted['alpha']:.0%}", r"of \d+ that were tried \(alpha\)"),
        (f"{drafted['alpha_exact']:.0%}", r"by their chances: less noise \(alpha, exact\)"),
        (f"{drafted['tokens_per_cycle']:.2f}", r"1 without guessing ahead \(E\)"),
        ("4", r"in most steps that guessed \(k\)"),
    ):
        assert re.search(rf" {value}  {meaning}", err), meaning
    assert err.endswith("In brackets: what the papers call it.\n")


def test_five_tokens_say_nothing_of_a_rate(cli: Program, readable: Models) -> None:
    args = ["run", *readable.pair, "-k", "2", "-n", "5", "--ignore-eos", "why?"]
    short, verbose = cli(*args).err, cli(*args, "--verbose").err
    assert "Too short an answer to compare" in short
    for said in (short, verbose):
        assert "%" not in said
        assert "alpha" not in said


@pytest.mark.slow
def test_without_a_draft_one_line_says_how_to_get_one(cli: Program, readable: Models) -> None:
    done = cli("run", *readable.alone, "-n", "5", "why?")
    hints = [line for line in done.err.splitlines() if "--draft" in line]
    assert len(hints) == 1
    assert "spec-cpu models list" in hints[0]
    assert "speedup" not in done.err
    assert "accepted" not in done.err


def test_who_wants_no_draft_gets_no_hint(
    cli: Program, readable: Models, plain: dict[str, Any]
) -> None:
    done = cli("run", *readable.plain, "--draft", "none", *ASKED)
    assert "--draft" not in done.err
    assert done.text == plain["text"] + "\n"
    assert f"{TOKENS} tokens in " in done.err


def test_quiet_leaves_the_text(cli: Program, readable: Models) -> None:
    done = cli("run", *readable.plain, "-n", "5", "--ignore-eos", "why?", "--quiet")
    assert len(done.text) == 6
    assert done.err == ""


def test_llama_log_shows_llama_cpp_and_nothing_else_does(cli: Program, readable: Models) -> None:
    args = ["run", *readable.pair, "--seed", "1", "-n", "5", "why?"]
    loud, calm = cli(*args, "--llama-log"), cli(*args, "--verbose")
    assert "llama_model_loader" in loud.err
    assert "llama_" not in calm.err
    assert loud.out == calm.out
