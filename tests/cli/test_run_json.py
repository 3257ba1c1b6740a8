"""`spec-cpu run --json`."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import ASKED, TOKENS

from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle import decode

if TYPE_CHECKING:
    from conftest import Models, Program


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


SPEEDUPS = ("speedup", "speedup_theory", "speedup_textbook", "plain_tokens_per_second")


def test_no_speedup_is_made_up(drafted: dict[str, Any]) -> None:
    """Every step was drafted, and what passes cost was never measured."""
    assert [drafted[name] for name in SPEEDUPS] == [None] * len(SPEEDUPS)


@pytest.mark.parametrize("pinned", [[], ["-k", "4"]])
def test_json_speedups(
    monkeypatch: pytest.MonkeyPatch,
    cli: Program,
    readable: Models,
    tmp_path: Path,
    pinned: list[str],
) -> None:
    """Where costs are known, by this answer or an earlier one."""
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    costs = Costs(tuple(1e-4 * (1 + 0.02 * n) for n in range(25)), 1e-5, 0.0, 0.0, 0.0)
    monkeypatch.setattr(measure, "measure", lambda *_, **__: costs)
    ticks = count()  # by the true clock a busy machine may seem to sample longer than it decodes
    monkeypatch.setattr(decode, "perf_counter", lambda: 1e-3 * next(ticks))
    models = [*readable.alone, "-d", str(readable.draft)]
    cli.answer(*models, "-n", "2", "why?")
    d = cli.answer(*models, *pinned, *ASKED)
    assert all(type(d[name]) is float and d[name] > 0 for name in SPEEDUPS)
    assert d["speedup"] == pytest.approx(d["tokens_per_second"] / d["plain_tokens_per_second"])


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


def test_json_says_why_nothing_was_drafted(
    monkeypatch: pytest.MonkeyPatch, cli: Program, readable: Models, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    for slope, length, reason in (
        (1.0, TOKENS, "no draft pays on this machine"),
        (0.02, 1, "the answer ended before"),
    ):
        costs = Costs(tuple(1e-4 * (1 + slope * n) for n in range(25)), 1e-5, 0.0, 0.0, 0.0)
        monkeypatch.setattr(measure, "measure", lambda *_, costs=costs, **__: costs)
        models = [*readable.alone, "-d", str(readable.draft), "--recalibrate"]
        d = cli.answer(*models, "--ignore-eos", "-n", str(length), "why?")
        assert d["drafted"] == 0
        assert reason in d["why_plain"]


def test_json_gives_no_reason_where_something_is_drafted(drafted: dict[str, Any]) -> None:
    assert drafted["why_plain"] is None
