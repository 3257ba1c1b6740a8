"""Costs on disk: who asks for them, what makes them doubtful, and when they are measured again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spec_cpu
from spec_cpu import defaults
from spec_cpu.costs import cache as kept
from spec_cpu.costs import measure
from spec_cpu.costs.cache import contradicted, timed
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.kept_record import KeptRecord
from spec_cpu.cycle.policy import HOPELESS
from spec_cpu.notices import DailyNotice

STEEP = Costs(tuple(0.01 * n for n in range(1, 26)), 0.001, 0.0, 0.0, 0.0)
FLAT = Costs(tuple(0.01 * (1 + 0.05 * n) for n in range(25)), 0.001, 0.0, 0.0, 0.0)
DAY = 24 * 3600.0
How = dict[str, Any]


class Clock:
    """The time of day, and what is measured: how often, and what comes of it."""

    def __init__(self) -> None:
        self.now = time.time()
        self.measured = 0
        self.gives = FLAT

    def measure(self, target: object, *_: object, **__: object) -> Costs:
        self.measured += 1
        return replace(self.gives, depth=len(target))  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    made = Clock()
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    monkeypatch.setattr(measure, "measure", made.measure)
    monkeypatch.setattr(kept.time, "time", lambda: made.now)
    monkeypatch.setattr(spec_cpu.Stats, "passes", {})  # true ones contradict what is made up
    monkeypatch.setattr(KeptRecord, "due", lambda *_: True)  # by the true clock it may not pay
    return made


Start = Callable[..., spec_cpu.Session]


@pytest.fixture
def start(tiny_target: Path, tiny_draft: Path) -> Iterator[Start]:
    """Loads the same models in a new session, as a new process would."""
    sessions: list[spec_cpu.Session] = []

    def load(draft: str | Path = tiny_draft, **how: Any) -> spec_cpu.Session:
        sessions.append(spec_cpu.load(tiny_target, draft, threads=1, **how))
        return sessions[-1]

    yield load
    for session in sessions:
        session.close()


def answer(session: spec_cpu.Session, tokens: int = 2, **how: Any) -> spec_cpu.Session:
    list(session.generate("hello", max_tokens=tokens, ignore_eos=True, **how))
    return session


def test_plan_and_every_kind_of_answer_go_by_one_measurement(clock: Clock, start: Start) -> None:
    planned = start(shape="chain", k=8).calibrate(9)
    greedy = spec_cpu.SamplingParams(temperature=0)
    for how in ({}, {"sampling": greedy}, {"shape": "tree"}, {"shape": "chain"}):
        costs = answer(start(**how)).costs
        assert costs is not None
        assert costs.passes == planned.passes
    assert clock.measured == 1
    start(recalibrate=True).calibrate(9)
    assert clock.measured == 2


def test_a_draft_that_is_left_out_goes_by_the_same_file(
    clock: Clock, start: Start, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read nothing when costs are looked up."""
    both = f"ngram,{tiny_draft}"
    answer(start(draft=both), 30)
    monkeypatch.setattr(KeptRecord, "due", lambda *_: False)
    assert not answer(start(draft=both), 30).stats.by_source["model"].drafted
    assert len(list((kept.cache_dir() / "costs").iterdir())) == 1
    assert clock.measured == 1


def test_a_plan_is_for_the_depth_that_was_asked_for(clock: Clock, start: Start) -> None:
    clock.gives = replace(FLAT, deepens=tuple(1e-6 * n for n in range(1, 26)))
    answer(start())
    short = start().calibrate(9, depth=200)
    assert (clock.measured, short.depth) == (1, 200), "what further context adds is known"
    assert short.passes[0] > FLAT.passes[0]
    deep = start(ctx=4096).calibrate(9, depth=3000)
    assert (clock.measured, deep.depth) == (2, 3000), "too far away to be concluded from that"
    assert start(ctx=4096).calibrate(9, depth=3100).depth == 3100
    assert clock.measured == 2


@pytest.mark.parametrize("hours", [1, 23, 24 * 29])
def test_what_was_measured_in_quiet_is_kept(clock: Clock, start: Start, hours: int) -> None:
    answer(start())
    clock.now += 3600 * hours
    answer(start())
    assert clock.measured == 1


@pytest.mark.parametrize("age", [30 * DAY, -60.0])
def test_what_is_old_or_from_the_future_is_measured_again(
    clock: Clock, start: Start, age: float
) -> None:
    answer(start())
    clock.now += age
    answer(start())
    assert clock.measured == 2


def test_disturbed_costs_are_said_to_be_so_and_measured_at_the_next_start(
    clock: Clock, start: Start
) -> None:
    clock.gives = replace(STEEP, disturbed="other programs used 1.5 of 2 processors")
    first = answer(answer(start()))
    assert clock.measured == 1, "not again in the same session"
    (notice,) = [each for each in first.notices if "busy" in each]
    assert "1.5 of 2 processors" in notice
    assert "`recalibrate`" in notice
    assert isinstance(notice, DailyNotice), "not at every start"
    clock.gives = FLAT
    second = answer(start())
    assert clock.measured == 2
    assert not [each for each in second.notices if "busy" in each]
    answer(start())
    assert clock.measured == 2


def test_a_machine_that_is_always_busy_is_measured_once_an_hour(clock: Clock, start: Start) -> None:
    clock.gives = replace(FLAT, disturbed="the host of this virtual machine took 20% of its time")
    for _ in range(9):
        session = answer(start())
        assert [each for each in session.notices if "busy" in each]
    assert clock.measured == 3
    for hour in range(1, 5):
        clock.now += 3601
        for _ in range(3):
            answer(start())
        assert clock.measured == 3 + hour


def test_disturbed_costs_give_way_once_an_undisturbed_answer_contradicts(
    clock: Clock, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.gives = replace(FLAT, disturbed="other programs used 1.5 of 2 processors")
    for _ in range(5):
        answer(start())
    assert clock.measured == 3, "that helped not: once an hour"
    monkeypatch.setattr(spec_cpu.Stats, "passes", {1: (30, 0.03 * FLAT.passes[0])})
    monkeypatch.setattr("spec_cpu.answer.participants.disturbance", lambda *_: None)
    answer(start())
    assert clock.measured == 3
    clock.gives = replace(FLAT, passes=tuple(0.03 * one for one in FLAT.passes))
    for _ in range(3):
        answer(start())
    assert clock.measured == 4


@pytest.mark.parametrize("busy", [False, True])
def test_a_plan_goes_by_no_costs_that_are_doubtful(clock: Clock, start: Start, busy: bool) -> None:
    clock.gives = replace(FLAT, disturbed="other programs used 1.5 of 2 processors" * busy)
    for _ in range(5):
        start().calibrate(9)
    assert clock.measured == (5 if busy else 1)
    clock.gives = FLAT
    assert not start().calibrate(9).disturbed


def test_nothing_is_expected_of_a_text_before_it_was_seen(clock: Clock, start: Start) -> None:
    assert start(draft="ngram").acceptance is None


@given(passes=st.lists(st.floats(1.0, 50.0), min_size=1, max_size=24).map(sorted))
def test_disturbed_costs_rule_nothing_out(passes: list[float]) -> None:
    from spec_cpu.cycle.policy import Policy

    costs = Costs([1.0, *passes], 1.0, 0.0, 0.0, 0.0, disturbed="something")
    made = Policy(costs, most=len(passes), deepest=1, passes=True)
    assert not made.hopeless
    assert made.reason != HOPELESS


def test_what_rules_drafting_out_is_looked_at_again_after_a_day(clock: Clock, start: Start) -> None:
    clock.gives = STEEP
    session = answer(start(), 30)
    assert (session.why_plain or "").startswith(HOPELESS)
    clock.now += 2 * 3600
    again = answer(start(), 30)
    assert again.why_plain == f"{HOPELESS} (timed 2 hours ago; `recalibrate` times it again)"
    assert clock.measured == 1
    clock.now += DAY
    clock.gives = FLAT
    assert answer(start(), 30).why_plain is None
    assert clock.measured == 2


@pytest.mark.parametrize(
    ("pace", "busy", "measured"),
    [(1.0, False, 1), (4.0, False, 2), (0.2, False, 2), (4.0, True, 1)],
)
def test_an_undisturbed_answer_that_contradicts_has_costs_measured_again(
    clock: Clock,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    pace: float,
    busy: bool,
    measured: int,
) -> None:
    seen = {1: (30, pace * FLAT.passes[0])}
    monkeypatch.setattr(spec_cpu.Stats, "passes", seen)
    why = "other programs" if busy else None
    monkeypatch.setattr("spec_cpu.answer.participants.disturbance", lambda *_: why)
    answer(start())
    answer(start())
    assert clock.measured == measured


@given(st.floats(0.7, 1.45), st.integers(0, 24), st.integers(0, 2000))
def test_passes_that_take_about_what_was_measured_contradict_nothing(
    pace: float, n: int, depth: int
) -> None:
    costs = replace(FLAT, deepens=tuple(1e-6 * n for n in range(1, 26)))
    seen = {n + 1: (100, pace * costs.pass_at(n + 1, depth))}
    assert not contradicted(costs, seen, depth)


@given(st.floats(1.6, 9), st.booleans(), st.integers(0, 24), st.integers(1, 40))
def test_many_passes_that_take_something_else_contradict(
    pace: float, slower: bool, n: int, count: int
) -> None:
    seconds = FLAT.passes[n] * (pace if slower else 1 / pace)
    assert contradicted(FLAT, {n + 1: (count, seconds)}, 0) == (count >= 16)
    assert not contradicted(FLAT, {99: (count, seconds)}, 0), "nothing was said of such passes"


@pytest.mark.parametrize(
    "damage", ["", "[]", "no", '{"format": 6}', '{"format": 6, "costs": {"passes": [1]}}', "age"]
)
def test_a_damaged_file_is_measured_again(clock: Clock, start: Start, damage: str) -> None:
    answer(start())
    (file,) = (kept.cache_dir() / "costs").glob("*.json")
    if damage == "age":
        found = json.loads(file.read_text())
        damage = json.dumps({**found, "costs": {**found["costs"], "measured": "now"}})
    file.write_text(damage)
    answer(start())
    assert clock.measured == 2


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1, "just now"), (60, "1 minute ago"), (7300, "2 hours ago"), (3 * DAY, "3 days ago")],
)
def test_the_age_is_said_in_words(clock: Clock, seconds: float, said: str) -> None:
    assert timed(replace(FLAT, measured=clock.now - seconds)) == f"timed {said}"


def test_what_was_accepted_is_what_is_expected(clock: Clock, start: Start) -> None:
    before = start().acceptance
    assert before
    assert not before.known
    session = answer(start(k=None), 200)
    counted = session.stats.by_source["model"]
    assert counted.tried >= 30
    after = start().acceptance
    assert after
    assert after.known
    assert after.likely == pytest.approx(counted.accepted / counted.tried)
    assert after.low <= after.likely <= after.high
    assert start(recalibrate=True).acceptance == after, "it does not depend on what passes cost"


def test_deep_costs_are_used_where_there_are_no_others(clock: Clock, start: Start) -> None:
    start(ctx=4096).calibrate(9, depth=3000)
    answer(start())
    assert clock.measured == 1
    assert defaults.PLAN_DEPTH < 1024
