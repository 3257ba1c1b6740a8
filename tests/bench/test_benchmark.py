"""Benchmarks: prompts, rounds of all arms, and what they come to."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spec_cpu
from spec_cpu import SamplingParams
from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.answer.steps import Step
from spec_cpu.bench.arms import SHIPPED, Pin, Prompt, Round, read_prompts, run
from spec_cpu.bench.results import Speedup, bootstrap, compare, most_used, summarize, sweep
from spec_cpu.bench.rivals import Decoded
from spec_cpu.costs import theory
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.plan import predicted_speedup
from spec_cpu.errors import UsageError
from spec_cpu.session import Session
from spec_cpu.text.rendering import Rendered

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
    prompts = read_prompts(SHIPPED)
    assert len(prompts) == 40
    assert len({prompt.category for prompt in prompts}) == 8


@given(ratios=st.lists(st.floats(0.1, 10), min_size=2, max_size=30))
def test_the_interval_holds_the_median(ratios: list[float]) -> None:
    speedup = bootstrap(ratios, 3)
    assert speedup.low is not None
    assert speedup.high is not None
    assert min(ratios) <= speedup.low <= speedup.median <= speedup.high <= max(ratios)


@pytest.mark.parametrize("prompts", [1, 2])
def test_one_prompt_or_two_give_no_interval(prompts: int) -> None:
    """However many turns they have."""
    assert bootstrap([1.0, 1.5, 1.5, 2.0], prompts) == Speedup(1.5, None, None)


@given(tried=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_no_share_is_told_of_fewer_than_30_tokens(tried: list[int]) -> None:
    tried.sort(reverse=True)
    source = SourceStats(cycles=9, tokens=9, drafted=99, accepted=0, tried=sum(tried))
    stats = Stats(cycles=9, tokens=9, decode=1.0, tried_by_position=tried, drafted=99)
    stats.accepted_by_position = [0] * len(tried)
    stats.by_source["ngram"] = source
    (result, overall) = summarize([Round("a", {0: stats, None: stats})], None).values()
    assert result == overall
    enough = sum(tried) >= 30
    assert (result.alpha is not None) == (result.alpha_exact is not None) == enough
    assert (result.sources["ngram"].alpha is not None) == enough
    assert len(result.alpha_by_position) == sum(n >= 30 for n in tried)


@pytest.fixture
def session(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    greedy = SamplingParams(temperature=0)
    with spec_cpu.load(
        tiny_target, tiny_draft, threads=1, sampling=greedy, k=3, shape="chain"
    ) as session:
        yield session


class Rival:
    """Answers at 5 tokens a second; says nothing of every second answer."""

    name = "rival"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, prompt: Rendered, max_tokens: int, seed: int) -> Decoded | None:
        self.asked.append(prompt.text)
        return Decoded(10, 2.0) if len(self.asked) % 2 else None


def test_every_turn_gives_a_round_that_adds_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spec_cpu.bench.results.ENOUGH", 1)  # so short answers would tell no share
    rounds = list(run(session, PROMPTS, pins=[3, 0], max_tokens=30, seed=1))
    assert [one.category for one in rounds] == ["a", "a", "b"]
    for one in rounds:
        plain, fast = one.stats[0], one.stats[3]
        assert plain.drafted == 0 < fast.drafted
        assert plain.tokens == fast.tokens, "greedy text is the same"
        assert plain.prompt_tokens == fast.prompt_tokens
    results = summarize(rounds, 3)
    assert list(results) == ["a", "b", "overall"]
    overall = results["overall"]
    assert overall.prompts == len(PROMPTS), "turns of one are one"
    assert overall.k == 3
    assert sum(overall.k_used.values()) == sum(one.stats[3].cycles for one in rounds)
    assert len(overall.alpha_by_position) == 3
    assert overall.alpha == pytest.approx(
        sum(r.stats[3].accepted for r in rounds)
        / sum(sum(r.stats[3].tried_by_position) for r in rounds)
    )
    assert overall.share_draft + overall.share_target + overall.share_sample <= 1.001


def test_who_begins_rotates_and_all_follow_the_main_arm(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Pin] = []
    said: list[list[str]] = []
    generate = session.generate

    def spy(*args: Any, **options: Any) -> Generator[Step, None, None]:
        asked.append(options["k"])
        said.append([turn["content"] for turn in session.messages])
        return generate(*args, **options)

    monkeypatch.setattr(session, "generate", spy)
    done: list[tuple[int, int]] = []
    rounds = run(
        session,
        PROMPTS,
        pins=[3, 0, 1],
        max_tokens=8,
        seed=1,
        progress=lambda *counts: done.append(counts),
    )
    assert len(list(rounds)) == 3
    assert asked == [3, 0, 1, 0, 1, 3, 1, 3, 0, 3, 0, 1]
    assert said[6] == said[7] == said[8] != [], "one conversation for all"
    assert done == [(n, 12) for n in range(13)]


def test_rivals_are_asked_what_we_are_asked(session: Session) -> None:
    rival = Rival()
    rounds = list(run(session, PROMPTS, pins=[3, 0], rivals=[rival], max_tokens=8, seed=1))
    assert [bool(one.rivals) for one in rounds] == [False, True, False]
    assert "two" in rival.asked[2]
    (row,) = compare(rounds, ["rival"], 3)
    plain, fast = (rounds[1].stats[k].tokens_per_second or 0.0 for k in (0, 3))
    assert row.tokens_per_second == 5.0
    assert row.speedup
    assert row.ours
    assert row.speedup.median == pytest.approx(5.0 / plain)
    assert row.ours.median == pytest.approx(fast / 5.0)
    (nothing,) = compare(rounds[:1], ["rival"], 3)
    assert nothing.speedup is nothing.ours is nothing.tokens_per_second is None


def test_the_sweep_sets_what_is_measured_beside_the_formulas(session: Session) -> None:
    rounds = list(run(session, PROMPTS, pins=[3, 0, 1], max_tokens=30, seed=1))
    costs = Costs((1.0, 1.5, 2.0, 2.5), 0.1, 0.0, 0.0, 0.0)
    one, three = sweep(rounds, [1, 3], costs)
    assert one.k == 1
    assert three.speedup == summarize(rounds, 3)["overall"].speedup
    for point in (one, three):
        assert point.alpha
        assert point.predicted == pytest.approx(predicted_speedup(costs, point.alpha, point.k))
        assert point.textbook == pytest.approx(float(theory.speedup(point.alpha, point.k, 0.1)))


def test_where_nothing_was_drafted_there_is_nothing_to_predict(session: Session) -> None:
    rounds = [
        Round(one.category, {0: one.stats[0], 2: one.stats[0]})
        for one in run(session, PROMPTS, pins=[3, 0], max_tokens=8, seed=1)
    ]
    (point,) = sweep(rounds, [2], Costs((1.0, 1.5, 2.0), 0.1, 0.0, 0.0, 0.0))
    assert point.alpha is point.predicted is point.textbook is None
    assert point.speedup.median == 1.0


def test_the_k_of_most_cycles() -> None:
    assert most_used({0: 3, 2: 5, 4: 5}) == 4
    assert most_used({0: 9, 2: 5}) == 0
    assert most_used({}) == 0
