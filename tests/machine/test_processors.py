"""Sharing the machine: fewer threads while others keep its processors busy."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spec_cpu
from spec_cpu.llama import context
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.machine import disturbance, hardware, processors
from spec_cpu.machine.processors import Processors


class Times(NamedTuple):
    user: float
    idle: float


class Machine:
    """Processors whose load, and a clock whose time, is set by hand."""

    def __init__(
        self, patch: pytest.MonkeyPatch, n: int, ours: Sequence[int] | None = None
    ) -> None:
        self.now, self.used, self.preempted = 100.0, 0.0, 0
        self.looks = 0
        self.busy = [0.0] * n  # seconds of each so far
        patch.setattr(hardware, "allowed_processors", lambda: list(ours or range(n)))
        patch.setattr(psutil, "cpu_times", self._times)
        patch.setattr(processors, "preempted", lambda: self.preempted)
        patch.setattr(processors, "perf_counter", lambda: self.now)
        patch.setattr(disturbance, "perf_counter", lambda: self.now)
        patch.setattr(disturbance, "process_time", lambda: self.used)

    def _times(self, percpu: bool) -> list[Times]:
        self.looks += percpu
        return [Times(each, 7.0) for each in self.busy]

    def run(self, seconds: float, own: float, busy: Sequence[float]) -> None:
        """Time in which our process used `own` processors, and those of the machine were `busy`."""
        self.now += seconds
        self.used += seconds * own
        self.busy = [so_far + seconds * each for so_far, each in zip(self.busy, busy, strict=True)]
        self.preempted += round(200 * seconds) if sum(busy) > own + 0.1 else 0


def settled(patch: pytest.MonkeyPatch, own: float, busy: Sequence[float], most: int) -> int:
    """The threads that run after a second of that load."""
    told = Machine(patch, len(busy))
    seen = Processors()
    assert seen.threads(most) == min(most, len(busy))
    told.run(1.0, own, busy)
    return seen.threads(most)


@pytest.mark.parametrize(
    ("own", "busy", "threads"),
    [
        (2.0, [1.0, 1.0], 2),  # alone
        (1.0, [1.0, 0.1], 2),  # alone, and waiting for something
        (1.0, [1.0, 1.0], 1),  # a busy program on each processor, or another run like ours
        (0.6, [1.0, 1.0], 1),  # still so, with one thread
        (1.0, [1.0, 0.05], 2),  # it has gone
        (1.7, [1.0, 1.0], 2),  # a film in a browser
        (1.5, [1.0, 1.0], 1),  # one busy program
    ],
)
def test_a_processor_that_others_keep_busy_is_left_out(
    monkeypatch: pytest.MonkeyPatch, own: float, busy: list[float], threads: int
) -> None:
    assert settled(monkeypatch, own, busy, 2) == threads


@given(
    busy=st.lists(st.floats(0, 1), min_size=1, max_size=16),
    share=st.floats(0, 1),
    most=st.integers(1, 20),
)
def test_threads_are_at_least_one_and_no_more_than_are_free(
    busy: list[float], share: float, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        threads = settled(patch, share * sum(busy), busy, most)
    free = len(busy) - sum(busy) * (1 - share)
    assert 1 <= threads <= most
    assert threads == 1 or threads <= free + 0.5
    assert threads == most or threads >= free - 0.61


def test_what_the_system_counts_wrongly_takes_no_thread_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some sandboxes count nothing, and coarse clocks give us more than was busy in all."""
    assert settled(monkeypatch, 2.0, [0.0, 0.0], 2) == 2
    assert settled(monkeypatch, 2.3, [1.0, 1.0], 2) == 2


def test_a_busy_program_is_noticed_when_it_comes_and_when_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Machine(monkeypatch, 2)
    seen = Processors()
    threads = []
    for _ in range(5):
        told.run(0.3, 2.0, [1.0, 1.0])
        threads.append(seen.threads(2))
    for _ in range(5):
        told.run(0.3, 0.5 * threads[-1], [1.0, 1.0])
        threads.append(seen.threads(2))
    for _ in range(5):
        told.run(0.3, threads[-1], [1.0, threads[-1] - 1.0])
        threads.append(seen.threads(2))
    assert threads == [2] * 5 + [2, 1, 1, 1, 1] + [2] * 5


def test_nobody_looks_where_nobody_disturbs(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Machine(monkeypatch, 2)
    seen = Processors()
    told.run(0.1, 2.0, [1.0, 1.0])
    assert seen.threads(2) == 2  # too short a time to tell
    told.run(0.2, 2.0, [1.0, 1.0])
    assert seen.threads(2) == 2
    looks = told.looks
    for _ in range(20):
        told.run(0.3, 2.0, [1.0, 1.0])
        assert seen.threads(2) == 2
    assert told.looks == looks


def test_only_the_load_of_processors_that_we_may_use_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Machine(monkeypatch, 8, ours=[2, 5])
    seen = Processors()
    told.run(1.0, 0.0, [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    assert seen.threads(2) == 2
    told.run(1.0, 0.0, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert seen.threads(2) == 1


def test_what_was_before_a_pause_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Machine(monkeypatch, 2)
    seen = Processors()
    told.run(60.0, 0.0, [1.0, 1.0])  # a compiler, while a person was reading
    assert seen.threads(2) == 2
    told.run(1.0, 0.0, [1.0, 1.0])
    assert seen.threads(2) == 1


def test_what_is_measured_runs_on_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Machine(monkeypatch, 2)
    seen = Processors()
    told.run(1.0, 0.0, [1.0, 1.0])
    with seen.claimed():
        assert seen.threads(2) == 2
    assert seen.threads(2) == 1


class Free:
    """As many processors as a test says."""

    def __init__(self) -> None:
        self.n = 8

    def threads(self, most: int) -> int:
        return min(self.n, most)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    told = Free()
    monkeypatch.setattr(context, "processors", told)
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)
    return told


def running(context: Context) -> tuple[int, int]:
    """The threads that llama.cpp runs passes of one token and of more on."""
    handle = context.handle
    return llama_cpp.llama_n_threads(handle), llama_cpp.llama_n_threads_batch(handle)


def test_passes_run_on_fewer_threads_while_others_are_busy(tiny_target: Path, free: Free) -> None:
    with Model(tiny_target) as model, Context(model, n_ctx=64) as context:
        rows = []
        for position, n in enumerate((8, 1, 1, 8)):
            free.n = n
            rows.append(context.decode([5], [position], [(0,)]).copy())
            assert running(context) == (min(n, 2), min(n, 2))
        context.truncate(0)
        free.n = 8
        for position, row in enumerate(rows):
            assert np.array_equal(context.decode([5], [position], [(0,)])[0], row[0])


def test_a_number_of_threads_that_was_asked_for_stays(tiny_target: Path, free: Free) -> None:
    free.n = 1
    with Model(tiny_target) as model, Context(model, n_ctx=64, threads=3) as context:
        context.decode([5], [0], [(0,)])
        assert running(context) == (3, 3)


def test_a_seed_on_stock_kernels_keeps_its_threads(
    tiny_target: Path, free: Free, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another number of threads they add up a long context in another order."""
    free.n = 1
    ran: list[tuple[int, int]] = []
    decode = Context.decode

    def noted(context: Context, *args: Any, **how: Any) -> Any:
        rows = decode(context, *args, **how)
        ran.append(running(context))
        return rows

    monkeypatch.setattr(Context, "decode", noted)
    for seed, threads in ((None, 1), (7, 2)):
        with spec_cpu.load(tiny_target, "none", kernels="off", seed=seed) as session:
            session.answer("Hello", max_tokens=2, raw=True)
        assert ran[-1] == (threads, threads)


SPINS = "GOMP_SPINCOUNT"


@pytest.mark.skipif(sys.platform != "linux", reason="llama.cpp's threads are GNU OpenMP's on Linux")
@pytest.mark.parametrize(
    ("chosen", "spins"),
    [
        ({}, "20000"),
        ({SPINS: "123"}, "123"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
        ({"OMP_WAIT_POLICY": "active"}, "30000000000"),
    ],
)
def test_llama_cpp_is_loaded_to_spin_shortly_unless_a_person_chose(
    chosen: dict[str, str], spins: str
) -> None:
    kept = {k: v for k, v in os.environ.items() if k not in (SPINS, "OMP_WAIT_POLICY")}
    code = (
        "import os; from spec_cpu.llama import model;"
        f"print({{k: os.environ.get(k) for k in ('{SPINS}', 'OMP_WAIT_POLICY')}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **chosen, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{SPINS} = '{spins}'" in done.stderr
    expected = {name: chosen.get(name) for name in (SPINS, "OMP_WAIT_POLICY")}
    assert done.stdout.strip() == str(expected), "our choice is nobody else's"
