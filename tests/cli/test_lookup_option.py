"""`--draft ngram` and `--lookup`: what the commands make of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Models, Program

ASKED = ["--seed", "1", "--temp", "0", "-n", "40", "--ignore-eos", "why? why? why?"]


@pytest.mark.slow
def test_it_is_the_default_for_a_target_alone_and_says_so(cli: Program, readable: Models) -> None:
    alone = cli.answer(*readable.alone, *ASKED)
    named = cli.answer(*readable.alone, "--draft", "ngram", *ASKED)
    plain = cli.answer(*readable.plain, *ASKED)
    assert alone["source"] == named["source"] == "ngram"
    assert plain["source"] is None
    assert alone["draft"] is None
    assert alone["text"] == named["text"] == plain["text"]
    assert any("from the text itself" in notice for notice in alone["notices"])
    assert not any("from the text itself" in notice for notice in named["notices"])


def test_a_looked_up_text_is_drafted_from(cli: Program, readable: Models, tmp_path: Path) -> None:
    plain = cli.answer(*readable.plain, *ASKED)
    file = tmp_path / "answer.txt"
    file.write_text("x\n" + plain["text"])
    args = [*readable.alone, "-d", "ngram", "-k", "6", *ASKED]
    without = cli.answer(*args)
    found = cli.answer(*args, "--lookup", file, "--lookup", file)
    assert found["text"] == without["text"] == plain["text"]
    assert found["accepted"] > without["accepted"]
    assert found["cycles"] < without["cycles"]


@pytest.mark.parametrize("command", ["run", "chat", "bench"])
def test_a_bad_file_is_one_line(
    cli: Program, readable: Models, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\0\1")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "why?"}\n')
    models = ["-m", readable.target, "-t", "1"]
    more = {"run": ["why?"], "chat": [], "bench": ["--prompts", prompts]}[command]
    for lookup, words in ((file, "is binary"), (tmp_path / "none", "no such file")):
        done = cli(command, *models, "-q", "--lookup", lookup, *more)
        assert done.code == 2
        assert done.err.startswith("spec-cpu: ")
        assert words in done.err
        assert len(done.err.splitlines()) == 1
    done = cli(command, *models, "-d", readable.draft, "-q", "--lookup", file, *more)
    assert done.code == 2
    assert "--lookup needs --draft ngram" in done.err


@pytest.mark.slow
def test_plan_measures_the_target_alone(cli: Program, readable: Models) -> None:
    done = cli("plan", *readable.alone[:4], "-d", "ngram", "--json", "--max-k", "3", "--depth", "8")
    assert done.code == 0
    assert done.json["c"] == 0
    assert len(done.json["verify"]) >= 4


@pytest.mark.slow
def test_bench_compares_it_with_plain_decoding(
    cli: Program, readable: Models, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"category": "copy", "prompt": "abc abc abc abc"}\n')
    models = [*readable.alone[:4], "-d", "ngram"]
    done = cli("bench", *models, "--prompts", prompts, "-n", "24", "--temp", "0", "--json", "-q")
    assert done.code == 0, done.err
    assert done.json["draft"] is None
    assert done.json["overall"]
