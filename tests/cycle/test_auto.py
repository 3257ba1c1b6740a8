"""Sessions that choose k by what it costs: the text stays exact, the costs are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import spec_cpu
from spec_cpu import SamplingParams, Session, defaults
from spec_cpu.answer import participants
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.policy import Outcome

GREEDY = SamplingParams(temperature=0)
FLAT = Costs(
    passes=tuple(0.01 * (1 + 0.02 * n) for n in range(defaults.MAX_TREE_NODES + 1)),
    draft_step=0.0002,
    draft_catch_up=0.0,
    rebuild=0.0,
    row=0.0,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine on which verification is nearly free; the list counts how often it is measured."""
    measured: list[int] = []

    def made_up(*_sequence: object, max_width: int, **_named: object) -> Costs:
        measured.append(max_width)
        return replace(FLAT, passes=FLAT.passes[:max_width])

    monkeypatch.setattr(measure, "measure", made_up)
    return measured


def answer(session: Session, n: int = 120) -> str:
    steps = session.generate("hello", max_tokens=n, ignore_eos=True)
    return "".join(step.text for step in steps)


@pytest.mark.usefixtures("flat")
def test_greedy_text_is_that_of_plain_decoding(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = answer(plain)
    # A tree's cells lie in another order: where two logits nearly tie it may choose the other.
    draft = spec_cpu.load(
        tiny_target,
        tiny_draft,
        threads=1,
        sampling=GREEDY,
        shape="chain",
        seed=1,  # choices do not follow the clock
    )
    with draft as session:
        assert answer(session) == expected
        assert session.stats.accepted > 0


@pytest.mark.usefixtures("flat")
def test_a_draft_that_is_always_right_is_used_to_the_full(tiny_target: Path) -> None:
    with spec_cpu.load(tiny_target, tiny_target, threads=1, seed=1) as session:
        answer(session, 300)
        assert session.stats.k >= 6
        assert session.stats.tokens_per_cycle
        assert session.stats.tokens_per_cycle > 4
        assert session.why_plain is None


def test_costs_are_measured_once_and_kept(
    tiny_target: Path, tiny_draft: Path, cache: Path, flat: list[int]
) -> None:
    for _ in range(2):
        with spec_cpu.load(tiny_target, tiny_draft, threads=1) as session:
            answer(session, 4)
    assert flat == [defaults.MAX_TREE_NODES + 1], "for chains and for trees"
    with spec_cpu.load(tiny_target, tiny_draft, threads=2) as session:
        answer(session, 4)
        session.calibrate(4)
    assert len(flat) == 2, "other threads are measured anew"
    with spec_cpu.load(tiny_target, tiny_draft, threads=2, recalibrate=True) as session:
        answer(session, 4)
        answer(session, 4)
    assert len(flat) == 3, "anew on request, and once"
    assert len(list((cache / "costs").iterdir())) == 2


def test_nothing_is_measured_for_a_plain_answer(
    tiny_target: Path, tiny_draft: Path, cache: Path, flat: list[int]
) -> None:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1) as session:
        list(session.generate("hello", max_tokens=4, k=0))
        assert session.costs is None
        answer(session, 4)
        assert session.costs
        assert flat == [len(session.costs.passes)]


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "not json", '{"format": 99}', "old", "short"])
def test_kept_costs_that_do_not_hold_are_measured_again(
    tiny_target: Path, tiny_draft: Path, cache: Path, flat: list[int], damage: str
) -> None:
    def run() -> None:
        with spec_cpu.load(tiny_target, tiny_draft, threads=1) as session:
            answer(session, 4)
            assert session.notices[:-1] == []

    run()
    (file,) = (cache / "costs").iterdir()
    record = json.loads(file.read_text())
    if damage == "old":
        record["costs"]["measured"] -= defaults.COSTS_AGE + 1
        damage = json.dumps(record)
    elif damage == "short":
        record["costs"]["passes"] = record["costs"]["passes"][:3]
        damage = json.dumps(record)
    file.write_text(damage)
    run()
    assert len(flat) == 2


@pytest.mark.usefixtures("flat")
def test_a_cache_that_cannot_be_written_is_a_notice(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "file"))
    with spec_cpu.load(tiny_target, tiny_draft, threads=1) as session:
        assert answer(session, 4)
        assert any("cannot keep the measured costs" in notice for notice in session.notices)


@pytest.mark.slow
def test_a_real_measurement_leaves_the_text_as_it_was(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = answer(plain)
    options = {"threads": 1, "sampling": GREEDY, "shape": "chain"}
    with spec_cpu.load(tiny_target, tiny_draft, **options) as session:
        costs = session.calibrate(5, depth=32)
        assert len(costs.passes) >= 5
        assert answer(session) == expected


@pytest.mark.usefixtures("flat")
def test_the_same_seed_gives_the_same_text(tiny_target: Path, tiny_draft: Path) -> None:
    texts = []
    for _ in range(2):
        with spec_cpu.load(tiny_target, tiny_draft, threads=1, seed=3) as session:
            texts.append(answer(session, 200))
            assert session.stats.drafted > 0
    assert texts[0] == texts[1]


@pytest.fixture
def long_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that leaves the draft out for 100 tokens, then drafts."""

    class Late(Pinned):
        def __init__(self, *_args: object, **_named: object) -> None:
            super().__init__(0)
            self.waited, self.brought = 0, [0.0, 0.0]

        def observe(self, outcome: Outcome) -> None:
            super().observe(outcome)
            self.waited += 1
            self.most = 4 if self.waited >= 100 else 0

    monkeypatch.setattr(participants, "Policy", Late)


@pytest.mark.usefixtures("flat", "long_gap")
@pytest.mark.parametrize("draft_ctx", [None, 32])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_draft_that_was_left_out_catches_up(
    tiny_target: Path, tiny_draft: Path, draft_ctx: int | None, shape: str
) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = answer(plain, 200)
    options = {"threads": 1, "sampling": GREEDY, "draft_ctx": draft_ctx, "shape": shape}
    with spec_cpu.load(tiny_target, tiny_draft, **options) as session:
        assert answer(session, 200) == expected
        assert session.stats.drafted > 40
