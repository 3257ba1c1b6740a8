"""`--draft ngram,MODEL`: what the commands make of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Models, Program

ASKED = ["--seed", "1", "--temp", "0", "-n", "60", "--ignore-eos", "-k", "4", "why? why? why?"]


def test_both_draft_and_each_is_reported(cli: Program, readable: Models) -> None:
    plain = cli.answer(*readable.plain, *ASKED)
    both = cli.answer(*readable.alone, "-d", f"ngram,{readable.draft}", *ASKED)
    assert both["text"] == plain["text"]
    assert both["source"] == "ngram,model"
    assert both["draft"] is not None
    parts = both["sources"]
    assert list(parts) == ["ngram", "model"]
    for key in ("drafted", "accepted"):  # what several proposed counts for each
        assert max(part[key] for part in parts.values()) <= both[key]
        assert sum(part[key] for part in parts.values()) >= both[key]
    assert plain["sources"] == {}
    drafts = ["-d", f"{readable.draft},ngram"]
    said = cli("run", *readable.alone, *drafts, *ASKED, "--verbose").err
    for name in ("model", "ngram"):
        assert re.search(rf"^{name} .* had a part in \d+ of \d+ steps", said, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("ngram,ngram", "names ngram 2 times"),
        ("a.gguf,b.gguf", "one draft model at a time"),
        (",", "empty name"),
        ("none,ngram", "--draft none"),
        ("ngram,none", "--draft none"),
        ("ngram,nothing.gguf", "no such file"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_is_no_list_of_drafts_is_one_line(
    cli: Program, readable: Models, command: str, draft: str, words: str
) -> None:
    asked = ["why?"] if command == "run" else []
    done = cli(command, "-m", readable.target, "-q", "-d", draft, *asked)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_bench_shows_the_parts(cli: Program, readable: Models, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"category": "copy", "prompt": "abc abc abc abc"}\n')
    models = [*readable.alone[:4], "-d", f"ngram,{readable.draft}", "-k", "4"]
    asked = ["--prompts", prompts, "-n", "24", "--temp", "0", "-q"]
    done = cli("bench", *models, *asked, "--json")
    assert done.code == 0, done.err
    parts = done.json["overall"]["sources"]
    assert list(parts) == ["ngram", "model"]
    assert all(0 <= part["cycles"] <= 1 for part in parts.values())
    assert any(part["cycles"] for part in parts.values())
    assert "by source" in cli("bench", *models, *asked).text
