"""Benchmarks: prompts, pairs, and what they are summed up to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.main import _run

import spec_cpu
from spec_cpu import SamplingParams
from spec_cpu.benchmark import Prompt, bootstrap, read_prompts, run, summarize
from spec_cpu.errors import UsageError

PROMPTS = [Prompt("a", ("one", "two")), Prompt("b", ("three",))]


def test_prompts_are_read(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"category": "x", "turns": ["a", "b"]}\n\n{"prompt": "c"}\n')
    assert read_prompts(file) == [Prompt("x", ("a", "b")), Prompt("all", ("c",))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no prompts"),
        ('{"turns": ["a"]}\nnonsense\n', "line 2"),
        ('{"turns": []}', "line 1"),
        ('{"turns": [1]}', "line 1"),
        ('{"category": "x"}', "line 1"),
        ('["a"]', "line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_prompts(file)


def test_the_shipped_prompts_are_read() -> None:
    prompts = read_prompts(Path(__file__).parent.parent / "bench" / "prompts.jsonl")
    assert len(prompts) == 40
    assert len({prompt.category for prompt in prompts}) == 8


@given(ratios=st.lists(st.floats(0.1, 10), min_size=1, max_size=30))
def test_the_interval_holds_the_median(ratios: list[float]) -> None:
    speedup = bootstrap(ratios)
    assert min(ratios) <= speedup.low <= speedup.median <= speedup.high <= max(ratios)


def test_every_turn_gives_a_pair_that_adds_up(tiny_target: Path, tiny_draft: Path) -> None:
    greedy = SamplingParams(temperature=0)
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, sampling=greedy, k=3) as session:
        pairs = list(run(session, PROMPTS, max_tokens=30, seed=1))
    assert [pair.category for pair in pairs] == ["a", "a", "b"]
    for pair in pairs:
        assert pair.plain.drafted == 0 < pair.fast.drafted
        assert pair.plain.tokens == pair.fast.tokens, "greedy text is the same"
        assert pair.plain.prompt_tokens == pair.fast.prompt_tokens
    results = summarize(pairs)
    assert list(results) == ["a", "b", "overall"]
    overall = results["overall"]
    assert overall.prompts == 3
    assert overall.k == 3
    assert overall.alpha == pytest.approx(
        sum(p.fast.accepted for p in pairs) / sum(sum(p.fast.tried_by_position) for p in pairs)
    )
    assert overall.share_draft + overall.share_target + overall.share_sample <= 1.001


def bench(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    monkeypatch.setattr("sys.argv", ["spec-cpu", "bench", *map(str, args)])
    return _run()


@pytest.fixture
def asked(tiny_target: Path, tiny_draft: Path, tmp_path: Path) -> list[object]:
    file = tmp_path / "p.jsonl"
    file.write_text('{"category": "x", "turns": ["a"]}\n' * 3)
    models = ["-m", tiny_target, "-d", tiny_draft, "-t", 1, "-k", 3]
    return ["--prompts", file, *models, "-n", 20, "-q"]


def test_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[object]
) -> None:
    assert bench(monkeypatch, *asked, "--json", "--temp", 0, "--limit", 2) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["settings"]["complete"]
    for part in (report["overall"], report["categories"]["x"]):
        assert part["prompts"] == 2
        assert part["speedup"]["low"] <= part["speedup"]["median"] <= part["speedup"]["high"]
        assert {"alpha", "alpha_exact", "tokens_per_cycle", "speedup_theory"} <= part.keys()
    assert report["peak_memory"] > 1e7


@pytest.mark.parametrize("form", [[], ["--markdown"]])
def test_tables(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[object],
    form: list[str],
) -> None:
    assert bench(monkeypatch, *asked, *form) == 0
    out = capsys.readouterr().out
    assert out.count("overall") == 2
    assert "temperature 0.8" in out


@pytest.mark.parametrize("args", [["-d", "none"], ["--temp", "warm"], ["--prompts", "/nowhere"]])
def test_bad_input(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[object],
    args: list[str],
) -> None:
    assert bench(monkeypatch, *asked, *args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spec-cpu: ")
