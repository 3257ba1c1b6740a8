"""Bad input, bad surroundings, impatient people: what the program answers.

The rule: whatever is wrong, there is one clear line on standard error that says so, the exit code
is 2 (what was asked for makes no sense) or 1 (it could not be done), there is never a traceback,
and nothing that was written is lost.

Most tests call the program in this process, where an exception that leaves it fails the test, and
so does a warning. Signals, pipes, descriptors and crashes need a process of their own.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
from spec_cpu_cli.main import _run

from spec_cpu import machine

NOT_UTF8 = b"a\xffb"
SURROGATE = "a\udcffb"  # how bytes that are not UTF-8 arrive from the command line
HUGE = "99999999999999999999"
DEADLINE = 60.0  # seconds after which a process counts as hanging
PROGRAM = (sys.executable, "-c", "from spec_cpu_cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of the program ended. `out` keeps line ends as they are."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as one JSON object; NaN and Infinity are not JSON."""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        value: dict[str, Any] = json.loads(self.out, parse_constant=refuse)
        return value


Call = Callable[..., Outcome]


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """The rule: one line on standard error with these words, nothing on standard output."""
    assert "Traceback" not in outcome.err
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("spec-cpu: ")
    for word in words:
        assert word.lower() in line.lower()


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No catalogue of the user's, an empty cache, a folder of one's own; no debugger on a crash."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GGML_NO_BACKTRACE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nothing here is worth a download
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the program in this process; `stdin` are bytes, or None for a closed one."""

    def run(*args: object, stdin: bytes | None = b"") -> Outcome:
        stream = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", stream)
        monkeypatch.setattr("sys.argv", ["spec-cpu", *map(str, args)])
        capsys.readouterr()
        code = _run()
        return Outcome(code, *capsys.readouterr())

    return run


def spawn(  # a process of its own
    *args: object,
    stdin: bytes = b"",
    redirect: str = "",
    env: dict[str, str] | None = None,
    memory: int | None = None,
    timeout: float = DEADLINE,
) -> Outcome:
    """Runs the program in a process; `redirect` is shell syntax, `memory` a limit in bytes."""

    limits = "ulimit -c 0" if memory is None else f"ulimit -c 0; ulimit -v {memory >> 10}"
    process = subprocess.Popen(
        ["sh", "-c", f'{limits}; "$@" {redirect}', "sh", *PROGRAM, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | (env or {}),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the shell and what it started
        process.communicate()
        pytest.fail(f"hangs: {timeout} s were not enough")
    return Outcome(process.returncode, out.decode("utf-8", "replace"), err.decode(errors="replace"))


@pytest.fixture
def pair(tiny_target: Path, tiny_draft: Path) -> list[str]:
    """Options for a quick answer by two tiny models, always the same one."""
    models = ["-m", str(tiny_target), "-d", str(tiny_draft)]
    return [*models, "-k", "4", "-n", "5", "--seed", "1", "-t", "1"]


@pytest.fixture
def plain(tiny_target: Path) -> list[str]:
    """Likewise, by the target alone."""
    return ["-m", str(tiny_target), "-d", "none", "-n", "5", "--seed", "1", "-t", "1"]


@pytest.fixture(scope="session")
def bad_models(models: Path, tiny_target: Path) -> dict[str, Path]:
    """Files that are no models one can use, by what is wrong."""
    folder = models / "bad"
    folder.mkdir()
    (folder / "empty.gguf").touch()
    (folder / "text.gguf").write_text("once upon a time")
    (folder / "folder.gguf").mkdir()
    first = tiny.write_llama(folder / "split.gguf", n_vocab=320, split=True)
    second = first.with_name(first.name.replace("-00001-", "-00002-"))
    lonely = folder / "lonely-00001-of-00002.gguf"
    lonely.write_bytes(first.read_bytes())
    files = {
        "missing": folder / "missing.gguf",
        "directory": folder / "folder.gguf",
        "empty": folder / "empty.gguf",
        "text": folder / "text.gguf",
        "adapter": tiny.write_adapter(folder / "adapter.gguf"),
        "projector": tiny.write_projector(folder / "projector.gguf"),
        "encoder": tiny.write_bert(folder / "encoder.gguf"),
        "second part": second,
        "part missing": lonely,
        "null device": Path("/dev/null"),
        "zero device": Path("/dev/zero"),
        "below a file": folder / "text.gguf" / "model.gguf",
        "overlong": folder / f"{'x' * 5000}.gguf",
    }
    for fraction in (0.001, 0.3, 0.9, 0.999):
        out = folder / f"truncated-{fraction}.gguf"
        files[f"truncated {fraction}"] = tiny.truncate(tiny_target, out, fraction)
    damages: tuple[tiny.Damage, ...] = ("magic", "header", "metadata", "tensor-info", "tensor-data")
    for what in damages:
        files[what] = tiny.corrupt(tiny_target, folder / f"{what}.gguf", what)
    return files


# Models


BAD_MODELS = [
    ("missing", 2, "no such file"),
    ("below a file", 2, "no such file"),
    ("overlong", 2, ""),
    ("directory", 2, "directory"),
    ("empty", 1, "empty"),
    ("null device", 2, "device"),
    ("zero device", 2, "device"),
    ("text", 1, "not a GGUF"),
    ("magic", 1, "not a GGUF"),
    ("truncated 0.001", 1, "again"),
    ("truncated 0.3", 1, "again"),
    ("truncated 0.9", 1, "truncated"),
    ("truncated 0.999", 1, "truncated"),
    ("header", 1, "damaged"),
    ("metadata", 1, "damaged"),
    ("tensor-info", 1, "damaged"),
    ("adapter", 1, "adapter"),
    ("projector", 1, "projector"),
    ("encoder", 1, "encode"),
    ("part missing", 1, "-00002-of-00002"),
    ("second part", 1, "first"),
]


@pytest.mark.parametrize(("kind", "code", "word"), BAD_MODELS)
def test_a_file_that_is_no_usable_target_is_named(
    call: Call, bad_models: dict[str, Path], kind: str, code: int, word: str
) -> None:
    file = bad_models[kind]
    refused(call("run", "hi", "-q", "-m", file, "-d", "none"), code, word, file.name[:50])


@pytest.mark.parametrize(("kind", "code", "word"), BAD_MODELS)
def test_a_file_that_is_no_usable_draft_is_named(
    call: Call, bad_models: dict[str, Path], plain: list[str], kind: str, code: int, word: str
) -> None:
    file = bad_models[kind]
    refused(call("run", "hi", "-q", *plain, "-d", file), code, word, file.name[:50])


@pytest.mark.parametrize("part", ["-m", "-d"])
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_weights_that_are_not_numbers_are_noticed_and_the_file_is_named(
    call: Call, bad_models: dict[str, Path], pair: list[str], part: str, temperature: str
) -> None:
    file = bad_models["tensor-data"]
    outcome = call("run", "hi", "-q", *pair, part, file, "--temp", temperature)
    refused(outcome, 1, "damaged", file.name)


@pytest.mark.parametrize("part", ["-m", "-d"])
def test_a_fifo_as_a_model_is_refused_and_not_waited_for(pair: list[str], part: str) -> None:
    fifo = Path.cwd() / "fifo"
    os.mkfifo(fifo)
    outcome = spawn("run", "hi", "-q", *pair, part, fifo, timeout=10)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "fifo")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_model_that_may_not_be_read(call: Call, tiny_target: Path) -> None:
    file = Path("mine.gguf")
    file.write_bytes(tiny_target.read_bytes())
    file.chmod(0)
    refused(call("run", "hi", "-m", file), 1, "mine.gguf", "permission")


def test_what_looks_like_a_path_is_one(call: Call, tiny_target: Path) -> None:
    """Rule: `./name` is a file, even where the catalogue has a model called `name`."""
    refused(call("run", "hi", "-m", "./nothing"), 2, "no such file", "nothing")
    own_catalogue(model_entry("mine", f'kind = "file", path = "{tiny_target}"'))
    refused(call("run", "hi", "-m", "./mine"), 2, "no such file", "mine")


@pytest.mark.parametrize("part", ["-m", "-d"])
def test_a_recurrent_model_works_without_drafting_and_with_a_notice(
    call: Call, tmp_path: Path, pair: list[str], part: str
) -> None:
    mamba = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=320, n_ctx=2048)
    outcome = call("run", "hi", *pair, part, mamba, "--json")
    assert outcome.code == 0
    assert outcome.json["tokens"] == 5
    assert outcome.json["drafted"] == 0
    assert "recurrent" in " ".join(outcome.json["notices"])
    assert "mamba.gguf" in outcome.err


def test_text_that_a_vocabulary_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Rule: where llama.cpp throws an exception, there is still one line."""
    small = tiny.write_llama(tmp_path / "small.gguf", n_vocab=32)
    outcome = spawn("run", "Ü", "--raw", "-q", "-m", small, "-d", "none")
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code)


# Vocabularies


def test_a_draft_with_other_tokens_is_refused(call: Call, tmp_path: Path, plain: list[str]) -> None:
    tokens = tiny.vocabulary(320)
    tokens[300], tokens[301] = tokens[301], tokens[300]
    draft = tiny.write_llama(tmp_path / "other.gguf", tokens=tokens)
    refused(call("run", "hi", "-q", *plain, "-d", draft), 1, "vocabular", "300", "family")


def test_a_draft_with_another_end_token_is_refused(
    call: Call, tmp_path: Path, plain: list[str]
) -> None:
    draft = tiny.write_llama(tmp_path / "other.gguf", n_vocab=320, eos=5)
    refused(call("run", "hi", "-q", *plain, "-d", draft), 1, "EOS", "family")


@pytest.mark.parametrize("part", ["-m", "-d"])
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_padding_at_the_end_of_a_vocabulary_is_no_difference(
    call: Call, tmp_path: Path, pair: list[str], part: str, temperature: str
) -> None:
    padded = tiny.write_llama(tmp_path / "padded.gguf", n_vocab=320, n_ctx=2048, n_pad=7, scale=3)
    outcome = call("run", "hi", *pair, part, padded, "--temp", temperature, "--json", "-q")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json["drafted"] > 0


# Prompts


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(
    call: Call, pair: list[str], extra: list[str]
) -> None:
    prompt = "x" * 500
    outcome = call("run", prompt, "-q", "--raw", *pair, "-c", 64, *extra)
    refused(outcome, 1, "64", "--ctx")
    assert int(re.findall(r"\d+", outcome.err)[0]) >= 500


@pytest.mark.parametrize("prompt", ["", " ", "\n\t"])
def test_an_empty_prompt_is_refused(call: Call, plain: list[str], prompt: str) -> None:
    refused(call("run", prompt, "-q", *plain), 2, "empty", "--file")
    refused(call("run", "-q", *plain, stdin=prompt.encode()), 2, "empty")


def test_a_byte_order_mark_alone_is_empty(call: Call, plain: list[str]) -> None:
    Path("prompt.txt").write_bytes(b"\xef\xbb\xbf")
    refused(call("run", "-q", *plain, "-f", "prompt.txt"), 2, "empty")


@pytest.mark.parametrize("args", [[], ["-f", "-"]])
def test_a_closed_standard_input_is_no_prompt(
    call: Call, plain: list[str], args: list[str]
) -> None:
    refused(call("run", "-q", *plain, *args, stdin=None), 2, "--file" if not args else "input")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("nothing.txt", ("no such file", "nothing.txt")),
        (".", ("directory",)),
        ("/dev/null", ("device",)),
        ("x" * 5000, ("cannot read",)),
    ],
)
def test_a_prompt_file_that_cannot_be_read_is_named(
    call: Call, plain: list[str], file: str, words: tuple[str, ...]
) -> None:
    refused(call("run", "-q", *plain, "-f", file), 2, *words)


def test_an_endless_prompt_file_is_refused(plain: list[str]) -> None:
    outcome = spawn("run", "-q", *plain, "-f", "/dev/zero", memory=3 << 30)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "/dev/zero")


def test_a_fifo_as_a_prompt_file_is_read(plain: list[str]) -> None:
    """Rule: process substitution, `--file <(command)`, works."""
    os.mkfifo("fifo")
    outcome = spawn("run", "-q", *plain, "-f", "fifo", redirect="& echo hello > fifo; wait $!")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out


@pytest.mark.parametrize("args", [["-f", "prompt.txt"], []])
def test_input_that_is_not_utf8_is_refused_with_the_place(
    call: Call, plain: list[str], args: list[str]
) -> None:
    Path("prompt.txt").write_bytes(NOT_UTF8)
    source = "prompt.txt" if args else "standard input"
    refused(call("run", "-q", *plain, *args, stdin=NOT_UTF8), 2, "UTF-8", source, "0xff")


@pytest.mark.parametrize("option", [None, "--system", "--stop"])
def test_an_argument_that_is_not_utf8_is_refused(
    call: Call, plain: list[str], option: str | None
) -> None:
    args = [SURROGATE] if option is None else ["hi", option, SURROGATE]
    refused(call("run", "-q", *plain, *args), 2, "UTF-8")


@pytest.mark.parametrize("option", ["-m", "-d", "-f", "--pair", "--rule", "--temp", "--logit-bias"])
def test_a_name_or_number_that_is_not_utf8_is_refused(plain: list[str], option: str) -> None:
    models = [] if option == "--pair" else plain
    refused(spawn("run", "hi", "-q", *models, option, SURROGATE), 2)


def test_a_nul_in_a_prompt_is_text(call: Call, plain: list[str]) -> None:
    outcome = call("run", "-q", *plain, stdin=b"a\0b")
    assert (outcome.code, outcome.err) == (0, "")


# Options


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("-k", "-1", "draft-tokens"),
        ("-k", "65", "64"),
        ("-k", HUGE, "draft-tokens"),
        ("-k", "x", "-k"),
        ("--rule", "x", "block"),
        ("--rule", "", "block"),
        ("--shape", "star", "chain"),
        ("--shape", "", "chain"),
        ("-n", "0", "max-tokens"),
        ("-n", "-1", "max-tokens"),
        ("-n", "1.5", "max-tokens"),
        ("--temp", "nan", "temp"),
        ("--temp", "-0.1", "temp"),
        ("--temp", "inf", "temp"),
        ("--temp", "warm", "temp"),
        ("--temp", "", "temp"),
        ("--top-k", "-1", "top-k"),
        ("--top-p", "0", "top-p"),
        ("--top-p", "-1", "top-p"),
        ("--top-p", "1.01", "top-p"),
        ("--top-p", "nan", "top-p"),
        ("--min-p", "-0.1", "min-p"),
        ("--min-p", "1.01", "min-p"),
        ("--min-p", "nan", "min-p"),
        ("--repeat-penalty", "0", "repeat-penalty"),
        ("--repeat-penalty", "-1", "repeat-penalty"),
        ("--repeat-penalty", "nan", "repeat-penalty"),
        ("--repeat-penalty", "inf", "repeat-penalty"),
        ("--frequency-penalty", "nan", "frequency-penalty"),
        ("--frequency-penalty", "-inf", "frequency-penalty"),
        ("--presence-penalty", "nan", "presence-penalty"),
        ("--presence-penalty", "inf", "presence-penalty"),
        ("--repeat-last-n", "-2", "repeat-last-n"),
        ("--seed", "-1", "seed"),
        ("--seed", "x", "seed"),
        ("-t", "0", "threads"),
        ("-t", "-1", "threads"),
        ("-c", "0", "ctx"),
        ("-c", "-5", "ctx"),
        ("--draft-ctx", "0", "draft-ctx"),
        ("--draft-ctx", "-1", "draft-ctx"),
        ("--draft-ctx", "31", "draft-ctx"),
        ("--logit-bias", "", "logit-bias"),
        ("--logit-bias", "x", "logit-bias"),
        ("--logit-bias", "5", "logit-bias"),
        ("--logit-bias", "=", "logit-bias"),
        ("--logit-bias", "5=x", "logit-bias"),
        ("--logit-bias", "1.5=1", "logit-bias"),
        ("--logit-bias", "-1=1", "logit-bias"),
        ("--logit-bias", "5=nan", "logit-bias"),
        ("--logit-bias", "5=inf", "logit-bias"),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_name_and_value(
    call: Call, pair: list[str], option: str, value: str, word: str
) -> None:
    outcome = call("run", "hi", "-q", *pair, option, value)
    refused(outcome, 2, word)
    if "input should be" not in outcome.err.lower():  # Typer's own words leave the value out
        refused(outcome, 2, value.rpartition("=")[2])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temp", "1e-320"),
        ("--temp", "1e300"),
        ("--top-k", HUGE),
        ("--top-p", "1e-300"),
        ("--min-p", "1e-320"),
        ("--repeat-penalty", "1e300"),
        ("--repeat-penalty", "1e-300"),
        ("--frequency-penalty", "1e300"),
        ("--presence-penalty", "-1e300"),
        ("--repeat-last-n", HUGE),
        ("--seed", HUGE),
        ("--logit-bias", "5=1e300"),
        ("--logit-bias", "5=-1e300"),
        ("--logit-bias", "1000000=1"),
        ("--logit-bias", f"{HUGE}=1"),
    ],
)
def test_an_extreme_value_works_in_silence_or_is_refused_by_name(
    call: Call, pair: list[str], option: str, value: str
) -> None:
    penalties = ["--presence-penalty", "0.1"]
    outcome = call("run", "hi", "-q", *pair, *penalties, option, value)
    if outcome.code == 0:
        assert outcome.err == ""
        assert outcome.out
    else:
        refused(outcome, 2, option.lstrip("-"))


@pytest.mark.parametrize("threads", ["100000", "99999999999"])
def test_more_threads_than_there_can_be_are_refused(plain: list[str], threads: str) -> None:
    """Rule: llama.cpp must not get to crash on them."""
    refused(spawn("run", "hi", "-q", *plain, "-t", threads), 2, "threads")


@pytest.mark.parametrize("value", ["1", "3"])
def test_a_context_too_small_to_draft_in_is_named_as_it_was_given(
    call: Call, pair: list[str], value: str
) -> None:
    outcome = call("run", "hi", "-q", *pair, "-c", value)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code)
    assert re.search(r"(?<!draft-)(ctx|context)", outcome.err)


def test_a_context_of_one_token_holds_no_prompt(call: Call, plain: list[str]) -> None:
    refused(call("run", "hi", "-q", *plain, "-c", "1"), 1, "context", "1", "--ctx")


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["run", "hi", "there"],
        ["run", "hi", "--nonsense"],
        ["run", "hi", "--seed"],
        ["chat", "hi"],
        ["chat", "--nonsense"],
        ["models", "nonsense"],
        ["models", "show"],
        ["models", "pull"],
        ["models", "list", "x"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(call: Call, args: list[str]) -> None:
    refused(call(*args), 2, "--help")


@pytest.mark.parametrize("args", [[], ["models"]])
def test_without_a_command_there_is_help(call: Call, args: list[str]) -> None:
    outcome = call(*args)
    assert outcome.code in (0, 2)
    assert "Usage" in outcome.out + outcome.err
    assert "Traceback" not in outcome.err


def test_options_that_contradict_each_other_are_refused(
    call: Call, tiny_target: Path, tiny_draft: Path
) -> None:
    pair = ["--pair", "smollm2-135m"]
    refused(call("run", "hi", *pair, "-m", tiny_target), 2, "--pair", "--target")
    refused(call("run", "hi", "-d", tiny_draft), 2, "--draft", "--target")
    refused(call("run", "hi", "-m", tiny_target, "--raw", "--system", "x"), 2, "--system", "--raw")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-m", "nothing-like-it"], ("nothing-like-it", "models list")),
        (["-m", "smollm2-135m-instrukt"], ("smollm2-135m-instruct", "mean")),
        (["-m", "smollm2-135m"], ("smollm2-135m-instruct", "mean")),
        (["-m", ""], ()),
        (["--pair", "qwen3-8"], ("qwen3-8b", "mean")),
        (["--pair", ""], ()),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    call: Call, args: list[str], words: tuple[str, ...]
) -> None:
    refused(call("run", "hi", *args), 2, *words)


@pytest.mark.parametrize("draft", ["", "NONE", "nothing"])
def test_an_unknown_draft_is_refused(call: Call, plain: list[str], draft: str) -> None:
    refused(call("run", "hi", "-q", *plain, "-d", draft), 2)


@pytest.mark.parametrize("command", ["show", "pull", "path"])
def test_an_unknown_name_for_models(call: Call, command: str) -> None:
    refused(call("models", command, "gemma-3-4b-instruct"), 2, "gemma-3-4b-it", "models list")


# Memory


def test_a_context_beyond_the_memory_is_refused(call: Call, default_path: Path) -> None:
    outcome = call("run", "hi", "-q", "-m", default_path, "-d", "none", "-c", "100000000")
    refused(outcome, 1, "100,000,000", "GB", "--ctx")


@pytest.mark.parametrize("option", ["-c", "--draft-ctx"])
def test_the_memory_check_counts_what_a_pass_needs(
    call: Call, pair: list[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Rule: the attention mask is part of it; for a small model it is more than the cache.

    Of 500,000 tokens, the cache takes 64 MB here, and the buffers of a pass 500 MB.
    """
    monkeypatch.setattr(machine, "available_memory", lambda: 300_000_000)
    refused(call("run", "hi", "-q", *pair, option, "500000"), 1, "500,000", "ctx")


def test_a_context_too_large_for_a_number_of_llama_cpp_is_refused(tmp_path: Path) -> None:
    """Rule: 2**32 + 1 does not become 1 (a recurrent memory does not grow with the context)."""
    mamba = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=320)
    outcome = spawn("run", "hi", "-q", "-m", mamba, "-d", "none", "-n", "5", "-c", 2**32 + 1)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "ctx")


# How an answer ends


@pytest.mark.parametrize("tokens", ["1000", HUGE])
@pytest.mark.parametrize("drafting", [True, False])
def test_a_context_that_fills_up_ends_the_answer_whole(
    call: Call, pair: list[str], tokens: str, drafting: bool
) -> None:
    args = ["run", "hi", "-q", "--raw", "--json", *pair, "--temp", "0", "--ignore-eos"]
    if not drafting:
        args += ["-d", "none"]
    full = call(*args, "-c", "64", "-n", tokens)
    assert (full.code, full.err) == (0, "")
    assert full.json["finish"] == "context"
    assert full.json["prompt_tokens"] + full.json["tokens"] == 64
    roomy = call(*args, "-c", "256", "-n", full.json["tokens"])
    assert roomy.json["finish"] == "length"
    assert full.json["text"] == roomy.json["text"]


def test_a_stop_string_is_not_part_of_the_answer(call: Call, pair: list[str]) -> None:
    args = ["run", "hi", "-q", "--raw", "--json", *pair, "--temp", "0", "-n", "40"]
    text = call(*args).json["text"]
    stop = text[10:13]
    stopped = call(*args, "--stop", stop).json
    assert stopped["text"] == text[: text.index(stop)]
    assert stopped["finish"] == "stop"


def test_an_empty_stop_string_stops_nothing(call: Call, pair: list[str]) -> None:
    outcome = call("run", "hi", "-q", "--json", *pair, "--stop", "")
    if outcome.code == 0:
        assert outcome.json["tokens"] == 5
    else:
        refused(outcome, 2, "stop")


@pytest.mark.parametrize("tokens", ["1", "2", "50"])
@pytest.mark.parametrize("k", ["0", "1", "64"])
def test_json_is_json(call: Call, pair: list[str], tokens: str, k: str) -> None:
    """Rule: one object, without NaN or Infinity, however short the answer."""
    outcome = call("run", "hi", *pair, "-n", tokens, "-k", k, "--ignore-eos", "--json", "-q")
    assert outcome.code == 0
    assert outcome.json["tokens"] == int(tokens)
    assert outcome.out.count("\n") == 1


# Standard streams


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
    assert spawn(*args, redirect="2>&1 | sleep 0").out == ""


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


# Chat


def test_a_chat_goes_on_after_a_prompt_that_does_not_fit(call: Call, plain: list[str]) -> None:
    lines = b"x" * 500 + b"\nhi\n/stats\n"
    outcome = call("chat", "-q", *plain, "-c", "64", stdin=lines)
    assert outcome.code == 0
    assert outcome.out
    complaint, *stats = outcome.err.strip().splitlines()
    assert "64" in complaint
    assert "5 tokens" in " ".join(stats)


def test_a_chat_answers_up_to_the_end_of_the_context(call: Call, pair: list[str]) -> None:
    outcome = call("chat", *pair, "-c", "64", "-n", "500", stdin=b"hi\n")
    assert outcome.code == 0
    assert outcome.out
    assert "/reset" in outcome.err.splitlines()[1] or "context is full" in outcome.err


@pytest.mark.parametrize(
    "name", ["", "/nothing/here.md", ".", "/dev/full", "a\0b", "~nobody-by-this-name/x", "x" * 5000]
)
def test_a_chat_goes_on_where_it_cannot_be_saved(call: Call, plain: list[str], name: str) -> None:
    lines = f"hi\n/save {name}\n/save good.md\n"
    outcome = call("chat", "-q", *plain, stdin=lines.encode())
    assert outcome.code == 0
    complaint, saved = outcome.err.splitlines()
    assert "/save" in complaint if not name else "cannot" in complaint
    assert "good.md" in saved
    assert Path("good.md").read_text(encoding="utf-8").startswith("## user")


def test_an_unknown_command_in_a_chat_is_said(call: Call, plain: list[str]) -> None:
    outcome = call("chat", "-q", *plain, stdin=b"/nonsense\n")
    assert outcome.code == 0
    (line,) = outcome.err.splitlines()
    assert "/nonsense" in line
    assert "/exit" in line


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_line_that_is_not_utf8_is_the_only_one_a_chat_leaves_out(
    plain: list[str], errors: str
) -> None:
    """Rule: the lines before and after it are answered, whatever Python makes of the locale."""
    env = {"PYTHONIOENCODING": f"utf-8:{errors}"}
    lines = b"one\n" + NOT_UTF8 + b"\ntwo\n/save text.md\n"
    outcome = spawn("chat", "-q", *plain, stdin=lines, env=env)
    assert outcome.code == 0, outcome.err
    complaint, saved = outcome.err.splitlines()
    assert "UTF-8" in complaint
    assert "4 turns" in saved


# The catalogue and the cache


def own_catalogue(text: str | bytes) -> Path:
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "spec-cpu" / "models.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def model_entry(name: str, source: str) -> str:
    return (
        f'[models.{name}]\nfamily = "F"\nparameters = "1"\nquantization = "F32"\n'
        f'license = "MIT"\nsource = {{ {source} }}\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "[models",
        "models = 1",
        "[nonsense]",
        "[models.x]",
        '[models."a/b"]',
        "[pairs.x]\ntarget = 'a'\ndraft = 'b'",
        model_entry("x", 'kind = "nonsense"'),
        model_entry("x", 'kind = "quantize", of = "x", type = "Q4_0"'),
        b"[models.x]\nfamily = '\xff'",
        "\0",
        "a = " + "[" * 5000,
    ],
    ids=lambda text: repr(text[:20]),
)
@pytest.mark.parametrize("args", [["run", "hi"], ["models", "list"], ["models", "path", "x"]])
def test_a_broken_catalogue_of_ones_own_is_named(
    call: Call, text: str | bytes, args: list[str]
) -> None:
    file = own_catalogue(text)
    refused(call(*args), 1, str(file))


def test_a_broken_catalogue_does_not_matter_to_files(call: Call, pair: list[str]) -> None:
    own_catalogue("[models")
    assert call("run", "hi", "-q", *pair).code == 0


@pytest.fixture
def fetchable(tiny_target: Path) -> str:
    """The name of a model that has to be fetched."""
    own_catalogue(model_entry("mine", f'kind = "url", url = "{tiny_target.as_uri()}"'))
    return "mine"


def test_a_source_that_is_gone_is_said(call: Call) -> None:
    own_catalogue(
        model_entry("file", 'kind = "file", path = "/nothing/x.gguf"')
        + model_entry("url", 'kind = "url", url = "file:///nothing/x.gguf"')
    )
    for name in ("file", "url"):
        refused(call("run", "hi", "-m", name), 1, "/nothing/x.gguf", name)


def test_a_cache_that_is_a_file(
    call: Call, fetchable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    monkeypatch.setenv("SPEC_CPU_CACHE", "file")
    refused(call("run", "hi", "-m", fetchable), 1, "file", "SPEC_CPU_CACHE")


def test_a_cache_of_a_user_who_does_not_exist(
    call: Call, fetchable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", "~nobody-by-this-name/cache")
    outcome = call("run", "hi", "-m", fetchable)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "nobody-by-this-name")


@pytest.mark.parametrize("folder", ["/proc", "/proc/nothing"])
def test_a_cache_that_cannot_be_written(fetchable: str, folder: str) -> None:
    outcome = spawn("run", "hi", "-m", fetchable, env={"SPEC_CPU_CACHE": folder}, timeout=10)
    refused(outcome, 1, folder, "SPEC_CPU_CACHE")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB: half of a tiny model."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_cache(
    call: Call, fetchable: str, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(small_disk))
    refused(call("run", "hi", "-m", fetchable), 1, "no space", str(small_disk), "SPEC_CPU_CACHE")
    monkeypatch.setenv("SPEC_CPU_CACHE", str(small_disk.parent / "cache"))
    assert call("models", "pull", fetchable).code == 0


def test_two_may_fetch_at_once(fetchable: str) -> None:
    command = [*PROGRAM, "models", "pull", fetchable]
    both = [subprocess.Popen(command, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    ends = [process.communicate(timeout=DEADLINE) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert ends[0] == ends[1]
    path = Path(ends[0][0].split()[-1])
    assert path.is_file()
    assert [file.name for file in path.parent.glob("[!.]*")] == [path.name]


# Ctrl-C


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


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5])
def test_ctrl_c_while_it_loads_ends_the_program_quietly(endless: list[str], seconds: float) -> None:
    ready = "import os; from spec_cpu_cli.main import main; os.write(1, b'.'); main()"
    command = [sys.executable, "-c", ready, "run", "hi", "-q", "--ignore-eos", *endless]
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
