"""`spec-cpu run`: where prompts come from, what goes to which stream, `--json`, Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Models, Program

    Shown = Callable[[bytes], list[str]]

TOKENS = 300
ASKED = ["--seed", "1", "-n", str(TOKENS), "--ignore-eos", "why?"]
ENDLESS = ["--seed", "1", "-n", "60000", "-c", "65536", "--ignore-eos", "why?"]
GREEN, YELLOW, CYAN = "32", "33", "36"

HELPED = [
    [],
    ["run"],
    ["chat"],
    ["models"],
    *(["models", name] for name in ("list", "show", "pull", "path")),
]


@pytest.fixture(scope="module")
def drafted(cli: Program, readable: Models) -> dict[str, Any]:
    """A run with a draft, as `--json` has it."""
    return cli.answer(*readable.pair, *ASKED)


@pytest.fixture(scope="module")
def plain(cli: Program, readable: Models) -> dict[str, Any]:
    """A run with a target alone, as `--json` has it."""
    return cli.answer(*readable.plain, *ASKED)


# Help.


@pytest.mark.parametrize("command", HELPED, ids=" ".join)
def test_help_is_quick_to_come(cli: Program, command: list[str]) -> None:
    code = (
        "import sys\n"
        "from spec_cpu_cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    print('CODE', end.code)\n"
        "print('LOADED', [m for m in ('llama_cpp', 'numpy', 'rich.live') if m in sys.modules])\n"
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


# The text.


def test_piped_output_is_the_text_and_nothing_else(
    cli: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    done = cli("run", *readable.pair, *ASKED)
    assert done.code == 0
    assert done.text == drafted["text"] + "\n"
    assert "\x1b" not in done.err


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
        ours.settimeout(30)
        writes, times = [], []
        while data := ours.recv(1 << 16):
            writes.append(data)
            times.append(time.monotonic())
    assert child.wait() == 0
    if kind == "plain":
        assert [len(data) for data in writes[:TOKENS]] == [1] * TOKENS
    else:
        assert max(map(len, writes)) <= 5  # k + 1
        assert sum(map(len, writes)) >= TOKENS
    # Not all at the end: the middle of the text was there about half-way through.
    middle = (times[len(times) // 2] - times[0]) / (times[-1] - times[0])
    assert 0.1 < middle < 0.9


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
def test_the_default_pair_needs_no_options(cli: Program, default_path: Path) -> None:
    """The target drafts for itself, through a head that comes with the package."""
    done = cli.answer("-t", "1", "-n", "6", "--temp", "0", "What is the capital of France?")
    assert done["tokens"] == 6
    assert done["text"].strip()
    assert done["notices"] == []
    assert Path(done["target"]["file"]).name == default_path.name
    assert Path(done["draft"]["file"]).name == "smollm2-135m-eagle.gguf"
    assert done["drafter"] == "ngram,eagle"
    assert done["target"]["quantization"] == "Q4_1"
    assert done["draft"]["quantization"] == "Q4_0"
    assert done["target"]["parameters"] == 134515008
    assert done["target"]["bytes"] == pytest.approx(default_path.stat().st_size, rel=0.05)


# Standard error.


def test_a_summary_follows_the_text(
    cli: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    err = cli("run", *readable.pair, *ASKED).err
    assert f"{TOKENS} tokens in " in err
    assert f"prompt: {drafted['prompt_tokens']} tokens" in err
    assert f"alpha {drafted['alpha']:.2f} observed, {drafted['alpha_exact']:.2f} exact" in err
    assert f"{drafted['tokens_per_cycle']:.2f} tokens a cycle with k = 4" in err
    assert re.search(r"[\d.]+ tok/s", err)
    assert re.search(r"speedup [\d.]+x over plain .* the formula says [\d.]+x, the textb", err)
    assert len(err.splitlines()) <= 6


def test_without_a_draft_one_line_says_how_to_get_one(cli: Program, readable: Models) -> None:
    done = cli("run", *readable.alone, "-n", "5", "why?")
    hints = [line for line in done.err.splitlines() if "--draft" in line]
    assert len(hints) == 1
    assert "spec-cpu models list" in hints[0]
    assert "speedup" not in done.err
    assert "alpha" not in done.err


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


def test_verbose_shows_llama_cpp_and_nothing_else_does(cli: Program, readable: Models) -> None:
    args = ["run", *readable.pair, "--seed", "1", "-n", "5", "why?"]
    loud, calm = cli(*args, "--verbose"), cli(*args)
    assert "llama_model_loader" in loud.err
    assert "llama_" not in calm.err
    assert loud.out == calm.out


# On a terminal.


def test_a_live_line_is_drawn_on_a_terminal(
    program: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, on="e")
    done = terminal.finish()
    assert done.text == drafted["text"] + "\n"
    live = _without_colours(terminal.shown).partition(f"{TOKENS} tokens in ")[0]
    for part in (r"alpha \d\.\d\d", r"\d\.\d\d tokens/cycle", r"\d tok/s", r"\d\.\d\dx plain"):
        assert re.search(part, live), part
    assert terminal.shown.count(b"tok/s") > 3


def test_the_live_line_of_plain_decoding_has_its_speed(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.plain, *ASKED, on="e")
    terminal.finish()
    live = _without_colours(terminal.shown).partition(f"{TOKENS} tokens in ")[0]
    assert re.search(r"\d tok/s", live)
    assert "alpha" not in live


def test_no_live_line_where_standard_error_is_no_terminal(
    program: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, on="io")
    done = terminal.finish()
    assert terminal.shown.decode().replace("\r\n", "\n") == drafted["text"] + "\n"
    assert "\x1b" not in done.err
    assert done.err.count("tok/s") == 2  # the summary's


def test_quiet_draws_nothing(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "-q", on="e")
    terminal.finish()
    assert terminal.shown == b""


@pytest.mark.parametrize("kind", ["pair", "plain"])
def test_the_live_line_leaves_the_text_intact(
    program: Program, readable: Models, request: pytest.FixtureRequest, kind: str, screen: Shown
) -> None:
    text = request.getfixturevalue("drafted" if kind == "pair" else "plain")["text"]
    drafting = [] if kind == "pair" else ["-d", "none"]
    terminal = program.on_terminal("run", *getattr(readable, kind), *drafting, *ASKED)
    terminal.finish()
    wanted = [
        line[at : at + 80].rstrip()
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), 80)
    ]
    shown = screen(terminal.shown)
    assert shown[: len(wanted)] == wanted
    below = "\n".join(shown[len(wanted) :])
    assert f"{TOKENS} tokens in " in below
    assert "tokens/cycle" not in below


@pytest.mark.parametrize("streams", ["oe", "o"])
def test_color_tells_where_tokens_come_from(
    program: Program, readable: Models, drafted: dict[str, Any], streams: str
) -> None:
    # With standard error on a terminal too the live line has colours of its own: --quiet.
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "--color", "-q", on=streams)
    terminal.finish()
    shown = terminal.shown.decode().replace("\r\n", "\n")
    assert _without_colours(terminal.shown) == drafted["text"] + "\n"
    tinted = re.findall(r"\x1b\[(\d+)m([^\x1b]*)\x1b\[0m", shown)
    sizes = {
        color: sum(len(text) for found, text in tinted if found == color)
        for color in (GREEN, YELLOW, CYAN)
    }
    assert sizes[GREEN] == drafted["accepted"]
    assert sizes[YELLOW] > 0
    assert sizes[CYAN] > 0
    assert sum(sizes.values()) in (TOKENS - 1, TOKENS)  # the last may be a plain step


def test_color_is_for_terminals_only(
    program: Program, readable: Models, drafted: dict[str, Any]
) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "--color", on="ie")
    assert terminal.finish().text == drafted["text"] + "\n"


def test_without_color_nothing_is_tinted(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ASKED, "-q", on="oe")
    terminal.finish()
    assert b"\x1b" not in terminal.shown


# --json.


def test_json_is_one_object_and_all_of_standard_output(cli: Program, readable: Models) -> None:
    done = cli("run", *readable.pair, "--json", "-n", "5", "why?")
    assert done.text.endswith("}\n")
    assert done.text.count("\n") == 1
    assert isinstance(json.loads(done.text), dict)


def test_json_counts(drafted: dict[str, Any]) -> None:
    d = drafted
    for name in ("prompt_tokens", "tokens", "k", "cycles", "drafted", "accepted"):
        assert type(d[name]) is int, name
    assert (d["tokens"], d["finish"], d["k"]) == (TOKENS, "length", 4)
    assert len(d["text"]) == TOKENS
    assert d["tokens"] == d["accepted"] + d["cycles"]
    tried = d["tried_by_position"]
    assert len(tried) == len(d["accepted_by_position"]) == d["k"]
    assert sum(d["accepted_by_position"]) == d["accepted"]
    assert all(a <= t for a, t in zip(d["accepted_by_position"], tried, strict=True))
    assert tried[1:] <= d["accepted_by_position"][:-1]  # reached if what was before was accepted
    assert 0 < d["accepted"] < sum(tried) < d["drafted"] <= d["k"] * d["cycles"]


def test_json_ratios(drafted: dict[str, Any]) -> None:
    d = drafted
    assert d["alpha"] == pytest.approx(d["accepted"] / sum(d["tried_by_position"]))
    assert 0 < d["alpha_exact"] < 1
    assert d["alpha_exact"] == pytest.approx(d["alpha"], abs=0.15)
    assert d["tokens_per_cycle"] == pytest.approx(d["tokens"] / d["cycles"])
    assert d["tokens_per_second"] == pytest.approx(d["tokens"] / d["seconds"]["decode"])
    assert d["speedup"] == pytest.approx(d["tokens_per_second"] / d["plain_tokens_per_second"])
    for name in ("speedup_theory", "speedup_textbook"):
        assert type(d[name]) is float
        assert d[name] > 0


def test_json_seconds(drafted: dict[str, Any], plain: dict[str, Any]) -> None:
    for answer in (drafted, plain):
        seconds = answer["seconds"]
        parts = [seconds[name] for name in ("draft", "target", "sample")]
        whole = [seconds[name] for name in ("load", "prefill", "decode")]
        assert all(type(value) is float for value in (*parts, *whole))
        assert min(*whole, *parts[1:]) > 0
        assert sum(parts) <= seconds["decode"] + 1e-6
        assert sum(parts) == pytest.approx(seconds["decode"], rel=0.2)
    assert drafted["seconds"]["draft"] > 100 * plain["seconds"]["draft"] / TOKENS


def test_json_models(drafted: dict[str, Any], readable: Models) -> None:
    for part, path in (("target", readable.target), ("draft", readable.draft)):
        info = drafted[part]
        assert isinstance(info["name"], str)
        assert Path(info["file"]).name == path.name
        assert info["bytes"] == 4 * info["parameters"] < path.stat().st_size  # weights alone
        assert info["parameters"] == 2 * 99 * 32 + 32 + 2 * 32 + 4 * 32 * 32 + 3 * 32 * 64
        assert info["quantization"] == "F32"


def test_json_of_a_plain_run(plain: dict[str, Any]) -> None:
    assert plain["draft"] is None
    for name in ("alpha", "alpha_exact", "speedup_theory", "speedup_textbook"):
        assert plain[name] is None, name
    assert (plain["k"], plain["drafted"], plain["accepted"]) == (0, 0, 0)
    assert plain["accepted_by_position"] == []
    assert plain["tokens"] == plain["cycles"] == TOKENS
    assert plain["plain_tokens_per_second"] == plain["tokens_per_second"] > 0


# Ctrl-C.


def test_ctrl_c_keeps_the_text_and_prints_the_summary(program: Program, readable: Models) -> None:
    child = program.start("run", *readable.pair, *ENDLESS)
    assert child.stdout
    begun = child.stdout.read(50)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    text = (begun + out).decode()
    assert child.returncode == 130
    found = re.search(r"^(\d+) tokens in .* tok/s", err.decode(), re.M)
    assert found
    assert len(text) == int(found[1]) + 1  # a newline at the end
    assert "the formula says" in err.decode()
    assert "Traceback" not in err.decode()


def test_ctrl_c_on_a_terminal(program: Program, readable: Models) -> None:
    terminal = program.on_terminal("run", *readable.pair, *ENDLESS)
    terminal.wait_for("tok/s")
    terminal.type("\x03")
    done = terminal.finish()
    assert done.code == 130
    assert re.search(rb"\d+ tokens in [\d.]+ s", terminal.shown)
    assert b"Traceback" not in terminal.shown


def test_an_interrupted_answer_says_so_in_json(program: Program, readable: Models) -> None:
    # The live line stays away with --json but for the terminal: that it is there means it writes.
    terminal = program.on_terminal("run", *readable.pair, *ENDLESS, "--json", on="ie")
    terminal.wait_for("tok/s")
    terminal.type("\x03")
    done = terminal.finish()
    assert done.code == 130
    assert done.json["finish"] == "interrupted"
    assert 0 < len(done.json["text"]) == done.json["tokens"]


def test_ctrl_c_while_the_prompt_is_read(program: Program, readable: Models) -> None:
    file = program.home / "long.txt"
    file.write_text("why? " * 12_000, encoding="utf-8")
    terminal = program.on_terminal("run", *readable.pair, "-c", "65536", "-f", file, on="ie")
    terminal.wait_for("reading the prompt")
    terminal.type("\x03")
    done = terminal.finish()
    assert (done.code, done.out) == (130, b"")
    assert b"stopped before the first token" in terminal.shown
    assert b"Traceback" not in terminal.shown


def test_a_second_ctrl_c_leaves_at_once(program: Program, readable: Models) -> None:
    # Nobody reads what it writes: it waits in the middle of a write, and cannot end in order.
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            child = program.start("run", *readable.pair, *ENDLESS, stdout=theirs.fileno())
        _wait_until_full(ours)
        child.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        child.send_signal(signal.SIGINT)
        assert child.wait(5) == 130


def _wait_until_full(reader: socket.socket) -> None:
    """Wait until nothing more comes in, though nothing was taken out."""
    seen, until = 0, time.monotonic() + 30
    while time.monotonic() < until:
        now: int = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))[0]
        if 0 < now == seen:
            return
        seen = now
        time.sleep(0.4)
    pytest.fail("the other end never stopped writing")


def _without_colours(shown: bytes) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).replace("\r\n", "\n")
