"""What else the processors did while something was timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.machine.disturbance import Spent, disturbance, spent

processors = st.integers(1, 64)
seconds = st.floats(0.3, 60)


def later(
    seconds: float, n: int, *, ours: float, others: float = 0.0, stolen: float = 0.0
) -> Spent:
    """`n` processors after some seconds, from 0; each part in processors."""
    busy = (ours + others) * seconds
    return Spent(seconds, ours * seconds, busy, stolen * seconds, n)


def begun(n: int) -> Spent:
    return Spent(0.0, 0.0, 0.0, 0.0, n)


@given(seconds, processors, st.data())
def test_our_own_work_disturbs_nobody(seconds: float, n: int, data: st.DataObject) -> None:
    threads = data.draw(st.integers(1, n))
    ours = data.draw(st.floats(0, threads))
    assert disturbance(begun(n), later(seconds, n, ours=ours), threads) is None


@given(seconds, processors)
def test_another_program_on_a_processor_that_we_need_does(seconds: float, n: int) -> None:
    after = later(seconds, n, ours=n - 1.0, others=1.0)
    why = disturbance(begun(n), after, n)
    assert why == f"other programs used 1.0 of {n} processors"


@given(seconds, processors)
def test_what_the_host_takes_does_and_is_not_taken_for_other_programs(
    seconds: float, n: int
) -> None:
    why = disturbance(begun(n), later(seconds, n, ours=0.8 * n, stolen=0.2 * n), n)
    assert why == "the host of this virtual machine took 20% of its time"


@pytest.mark.parametrize(("others", "disturbs"), [(1.0, False), (2.0, False), (3.0, True)])
def test_processors_that_are_left_idle_may_be_used(others: float, disturbs: bool) -> None:
    why = disturbance(begun(8), later(1.0, 8, ours=4.0, others=others), threads=4)
    assert (why is not None) == disturbs


def test_a_moment_says_nothing() -> None:
    assert disturbance(begun(2), later(0.1, 2, ours=0.0, others=2.0), 2) is None


def test_it_is_told_what_this_machine_does() -> None:
    before = spent()
    assert before.processors >= 1
    assert before.busy > 0
    after = spent()
    assert after.clock >= before.clock
    assert after.ours >= before.ours
    assert replace(after, clock=before.clock, ours=0).processors == before.processors
