"""What statistics keep, and how they read."""

from __future__ import annotations

import pickle

from made_up import COSTS, answer

from spec_cpu.answer.stats import Stats

AT_TURNS = [0] * 10 + [4] * 10


def counted(widths: list[int]) -> Stats:
    stats = Stats()
    stats.plain.begin(COSTS)
    for cycle in answer(widths):
        stats.add(cycle, len(cycle.tokens))
    return stats


def test_a_long_conversation_takes_no_more_memory_than_a_shorter_one() -> None:
    shorter, longer = counted(AT_TURNS * 100), counted(AT_TURNS * 300)
    assert longer.k_used == {0: 3000, 4: 3000}, "all are counted, whatever is kept of them"
    assert len(pickle.dumps(longer)) < 1.01 * len(pickle.dumps(shorter))
    for _ in range(3):
        longer.merge(shorter)
    assert longer.k_used == {0: 6000, 4: 6000}
    assert len(pickle.dumps(longer)) < 1.01 * len(pickle.dumps(shorter))
    assert longer.verify_cost is not None
    assert longer.speedup_theory is not None


def test_they_read_as_a_person_asks() -> None:
    drafted = repr(counted(AT_TURNS))
    for figure in (
        "40 tokens in ",
        "tokens/s",
        "20 of 40 drafted tokens accepted",
        "2.00 tokens per",
    ):
        assert figure in drafted
    assert drafted.endswith("x plain decoding>")
    assert "drafted" not in repr(counted([0] * 10))
    assert repr(Stats()) == "<Stats: 0 tokens in 0.00 s>"
