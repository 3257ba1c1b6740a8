"""What draft models brought in earlier answers, and who takes part in the next one by that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spec_cpu
from spec_cpu import defaults
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.kept_record import KeptRecord

FLAT = Costs(
    passes=tuple(0.01 * (1 + 0.02 * n) for n in range(defaults.MAX_TREE_NODES + 1)),
    draft_step=0.0002,
    draft_catch_up=0.0,
    rebuild=0.0,
    row=0.0,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records" / "one.json"


def test_who_is_not_known_takes_part_and_who_pays_goes_on(path: Path) -> None:
    record = KeptRecord(path)
    assert record.due("model")
    for _ in range(10):
        record.took_part("model", 100, 60)
        assert record.due("model")
    assert record.advance("model") is None


@given(st.lists(st.integers(1, 400), min_size=20, max_size=60))
def test_what_does_not_pay_costs_half_a_percent(answers: list[int]) -> None:
    """Each try loses what it may: of all but the first that is half a percent, or less."""
    record = KeptRecord(Path("nowhere"))
    record.took_part("model", 50, 100)
    lost, tokens = 0.0, 0
    for n in answers:
        if record.due("model"):
            lost += record.advance("model") or 0.0
            record.took_part("model", 10, 20)
        else:
            record.left_out("model", n)
            tokens += n
    assert lost <= 0.005 * tokens + 1e-9
    record.left_out("model", 400)
    assert record.due("model"), "it is tried again"


def test_a_draft_that_got_better_is_found_to_pay(path: Path) -> None:
    record = KeptRecord(path)
    record.took_part("model", 400, 800)
    assert not record.due("model")
    tries = 0
    while not record.pays("model"):
        record.left_out("model", 250)
        assert record.due("model")
        record.took_part("model", 80, 40)
        tries += 1
    assert tries < 20


@pytest.mark.parametrize(
    "damage", ["", "{}", "[1]", "no", '{"written": 1, "brought": {}}', '{"written": 9e9}', "shape"]
)
def test_it_is_kept_and_what_is_damaged_is_empty(path: Path, damage: str) -> None:
    record = KeptRecord(path)
    record.took_part("model", 400, 800)
    record.write()
    assert not KeptRecord(path).due("model")
    assert KeptRecord(path).due("other")
    assert KeptRecord(path, anew=True).due("model")
    if damage == "shape":
        found = json.loads(path.read_text())
        damage = json.dumps({**found, "brought": {"model": [1, 2]}})
    path.write_text(damage)
    assert KeptRecord(path).due("model")


def test_what_others_wrote_of_other_drafters_stays(path: Path) -> None:
    greedy, sampled = KeptRecord(path), KeptRecord(path)
    assert sampled.due("greedy"), "nothing is known of it here, and nothing is said of it"
    greedy.took_part("greedy", 400, 800)
    greedy.write()
    sampled.took_part("sampled", 400, 800)
    sampled.write()
    kept = KeptRecord(path)
    assert not kept.due("greedy")
    assert not kept.due("sampled")


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record = KeptRecord(tmp_path / "file" / "one.json")
    record.took_part("model", 400, 800)
    record.tried("model", 3, 4)
    record.write()
    assert not record.due("model")
    assert record.accepted("model") == (3, 4)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_draft_that_did_not_pay_is_left_out_of_the_next_session(
    tiny_target: Path,
    tiny_draft: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int | None,
) -> None:
    """Unless a seed is given: the same choices again are worth more then."""
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    monkeypatch.setattr(measure, "measure", lambda *_, **__: FLAT)
    drafted = []
    for _ in range(2):
        with spec_cpu.load(tiny_target, tiny_draft, threads=1, seed=seed) as session:
            list(session.generate("hello", max_tokens=60, ignore_eos=True))
            drafted.append(session.stats.drafted)
            for file in (tmp_path / "records").glob("*"):  # by the clock it might have paid
                found = json.loads(file.read_text())
                names = {name: [400.0, 800.0, 0.0] for name in found["brought"]}
                file.write_text(json.dumps({**found, "brought": names}))
            if seed is None and len(drafted) == 2:
                assert session.why_plain == "its drafts did not pay in earlier answers"
    assert drafted[0] > 0
    assert (drafted[1] > 0) == (seed is not None)


@pytest.mark.parametrize("at_loading", [True, False])
def test_an_answer_with_a_pinned_k_says_nothing_of_who_pays(
    tiny_target: Path,
    tiny_draft: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_loading: bool,
) -> None:
    """It drafts whether that pays or not."""
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))
    monkeypatch.setattr(measure, "measure", lambda *_, **__: FLAT)
    with spec_cpu.load(tiny_target, tiny_draft, threads=1) as session:
        list(session.generate("hello", max_tokens=5))  # costs are on disk now
    for file in (tmp_path / "records").glob("*"):
        file.unlink()
    at_load, at_answer = (4, None) if at_loading else (None, 4)
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, k=at_load) as session:
        list(session.generate("hello", max_tokens=60, ignore_eos=True, k=at_answer))
        assert session.stats.drafted
        assert session.stats.speedup
    assert not list((tmp_path / "records").glob("*"))
