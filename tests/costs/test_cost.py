"""The cost model, on a machine of our own: a clock that simulated passes move on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spec_cpu.costs import measure as measuring
from spec_cpu.costs.costs import Costs
from spec_cpu.machine.disturbance import Spent
from spec_cpu.sampling.pipeline import Distribution, Pipeline, SamplingParams

CURVES: dict[str, Any] = {
    "linear": lambda n: n,
    "stock": lambda n: 1 + 0.62 * (n - 1),
    "flat": lambda n: 1 + 0.05 * (n - 1),
}


class Machine:
    """Time that passes take: `plain` seconds times the curve, a graph's building, and noise.

    `noise`: the share of passes that take four times as long. `jitter`: what the others may take
    longer. `deepens`: seconds of a pass over n tokens for each token of context beyond 100.
    `tired`: how much longer passes take right after one over more than `wide` tokens, a tenth less
    after each that follows. `others`, `stolen`: processors that other programs and other guests
    keep busy.
    """

    def __init__(
        self,
        plain: float,
        curve: Any,
        *,
        rebuild: float = 0.0,
        noise: float = 0.0,
        jitter: float = 0.0,
        deepens: Any = lambda n: 0.0,
        tired: float = 0.0,
        wide: int = 16,
        others: float = 0.0,
        stolen: float = 0.0,
    ) -> None:
        self.now = 0.0
        self.others, self.stolen, self.jitter = others, stolen, jitter
        self.plain, self.curve, self.rebuild, self.noise = plain, curve, rebuild, noise
        self.deepens, self.tired, self.tiredness, self.wide = deepens, tired, 0.0, wide
        self.rng = np.random.default_rng(0)

    def pass_over(self, n: int, changed: bool, depth: int = 100) -> None:
        slow = 4.0 if self.rng.random() < self.noise else 1.0 + self.jitter * self.rng.random()
        slow *= 1.0 + self.tiredness
        self.tiredness = self.tired if n > self.wide else 0.9 * self.tiredness
        self.now += slow * (self.plain * self.curve(n) + self.rebuild * changed)
        self.now += self.deepens(n) * (depth - 100)

    def spent(self) -> Spent:
        """On two processors, which our threads keep busy where others do not."""
        others, stolen = self.others * self.now, self.stolen * self.now
        return Spent(self.now, 2 * self.now - others - stolen, 2 * self.now - stolen, stolen, 2)


class Sequence:
    """What `measure` needs of a KVSequence, on a `Machine`."""

    def __init__(self, machine: Machine, vocabulary: int = 32, rereads: int = 0) -> None:
        self.machine, self.depth, self.width, self.rereads = machine, 100, 0, rereads
        self.context: Any = SimpleNamespace(
            n_ctx=4096,
            max_outputs=65,
            threads=2,
            model=SimpleNamespace(vocab=SimpleNamespace(n=vocabulary)),
        )

    def __len__(self) -> int:
        return self.depth

    def score(self, tokens: list[int]) -> np.ndarray:
        self.machine.pass_over(len(tokens), len(tokens) != self.width, self.depth)
        self.width = len(tokens)
        self.depth += len(tokens)
        return np.zeros((len(tokens), 8), np.float32)

    def prefill(self, tokens: list[int]) -> None:
        """As `score`, but many tokens in one pass cost little."""
        n = len(tokens)
        self.machine.pass_over(min(n, 16), True, self.depth)
        self.width = n
        self.depth += n

    def truncate(self, n: int) -> None:
        self.depth = n


def measure(
    monkeypatch: pytest.MonkeyPatch, target: Machine, draft: Machine | None = None, **how: Any
) -> Costs:
    monkeypatch.setattr(measuring, "perf_counter", lambda: target.now + (draft.now if draft else 0))
    monkeypatch.setattr(measuring, "spent", target.spent)
    sequence: Any = Sequence(target)
    small: Any = Sequence(draft, **how.pop("small", {})) if draft else None
    costs = measuring.measure(
        sequence,
        1,
        max_width=how.pop("max_width", 16),
        pipeline=how.pop("pipeline", Pipeline(SamplingParams())),
        draft=small,
        **how,
    )
    assert sequence.depth == 100, "the sequence is left as it was"
    return costs


@pytest.mark.parametrize("curve", CURVES)
def test_the_curve_is_found(monkeypatch: pytest.MonkeyPatch, curve: str) -> None:
    costs = measure(monkeypatch, Machine(0.01, CURVES[curve], rebuild=0.003))
    for n in range(1, 17):
        assert costs.verify(n) == pytest.approx(CURVES[curve](n), rel=0.02)
    assert costs.passes[0] == pytest.approx(0.01)
    assert costs.rebuild == pytest.approx(0.003, rel=0.1)
    assert costs.depth == 100


def test_the_drafts_costs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Machine(0.002, CURVES["stock"])
    costs = measure(monkeypatch, Machine(0.01, CURVES["stock"]), draft)
    assert costs.c == pytest.approx(0.2)
    assert costs.draft_read == pytest.approx(0.002 * CURVES["stock"](16) / 16)
    assert costs.draft_catch_up == 0


def test_a_draft_that_reads_accepted_tokens_anew_pays_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft = Machine(0.002, CURVES["stock"])
    costs = measure(monkeypatch, Machine(0.01, CURVES["stock"]), draft, small={"rereads": 2})
    assert costs.draft_catch_up == pytest.approx(0.002 * (CURVES["stock"](3) - 1))
    assert costs.c == pytest.approx(0.2)


def test_a_first_step_of_another_width_builds_two_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Machine(0.002, CURVES["flat"], rebuild=0.0005)
    costs = measure(monkeypatch, Machine(0.01, CURVES["stock"]), draft, small={"rereads": 2})
    assert costs.draft_step == pytest.approx(0.002)
    assert costs.draft_catch_up == pytest.approx(2 * 0.0005 + 0.002 * (CURVES["flat"](3) - 1))


def test_a_row_of_a_smaller_vocabulary_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Machine(0.01, CURVES["stock"])

    class Slow(Pipeline):
        def distribution(self, *arguments: Any) -> Distribution:
            target.now += 0.001
            return super().distribution(*arguments)

    pipeline = Slow(SamplingParams())
    draft = Machine(0.002, CURVES["stock"])
    costs = measure(monkeypatch, target, draft, pipeline=pipeline, small={"vocabulary": 8})
    assert costs.row == pytest.approx(0.001)
    assert costs.draft_step == pytest.approx(0.002 + 0.001 * 8 / 32)


def test_bursts_of_another_program_do_not_change_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = measure(monkeypatch, Machine(0.004, CURVES["stock"], noise=0.15), max_width=9)
    for n in range(1, 10):
        assert costs.verify(n) == pytest.approx(CURVES["stock"](n), rel=0.05)


@pytest.mark.parametrize("curve", ["stock", "flat"])
@pytest.mark.parametrize("plain", [0.001, 0.004, 0.014, 0.016, 0.045, 0.055, 0.2, 0.6, 2.0])
@pytest.mark.parametrize("c", [None, 0.05, 0.2])
def test_measuring_takes_3_s_or_the_few_passes_without_which_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, plain: float, c: float | None, curve: str
) -> None:
    draft = None if c is None else Machine(c * plain, CURVES[curve])
    machine = Machine(plain, CURVES[curve], jitter=0.2)  # which keeps it from being steady
    costs = measure(monkeypatch, machine, draft, max_width=25)
    drafted = (c or 0.0) * (3 + CURVES[curve](16) + 1)
    fewest = 1.2 * plain * (2 + CURVES[curve](2) + 2 * drafted)
    assert machine.now + (draft.now if draft else 0.0) <= max(3.0, fewest + 1e-9)
    assert len(costs.passes) == 25
    assert list(costs.passes) == sorted(costs.passes)
    assert costs.verify(2) == pytest.approx(CURVES[curve](2), rel=0.2)


@pytest.mark.parametrize("plain", [0.001, 0.025, 0.1, 0.2])
def test_a_curve_that_bends_is_known_at_1_2_4_and_8_as_far_as_steps_are_not_very_slow(
    monkeypatch: pytest.MonkeyPatch, plain: float
) -> None:
    bends = {1: 1.0, 2: 1.02, 3: 1.3, 4: 1.61, 5: 1.9, 6: 2.2, 7: 2.5, 8: 2.87}
    curve = lambda n: bends.get(n, 2.87 + 0.36 * (n - 8))  # noqa: E731
    costs = measure(monkeypatch, Machine(plain, curve), Machine(plain / 10, curve), max_width=25)
    for n in (1, 2, 4, 8):
        assert costs.verify(n) == pytest.approx(curve(n), rel=0.02)


@pytest.mark.parametrize("tired", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("rebuild", [0.0, 0.0005])
def test_what_plain_steps_lose_after_a_wide_pass_is_found(
    monkeypatch: pytest.MonkeyPatch, tired: float, rebuild: float
) -> None:
    plain = 0.002
    machine = Machine(plain, CURVES["flat"], rebuild=rebuild, tired=tired, wide=1)
    costs = measure(monkeypatch, machine)
    lost = plain * tired * sum(0.9**i for i in range(12))
    assert costs.recovery == pytest.approx(lost, rel=0.3, abs=0.05 * plain)


def test_a_large_models_recovery_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure(monkeypatch, Machine(0.03, CURVES["flat"], tired=0.3, wide=1)).recovery == 0.0


def test_it_stops_early_when_the_medians_are_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0.001, CURVES["flat"])
    measure(monkeypatch, machine)
    assert machine.now < 3.5


@pytest.mark.parametrize("deepens", [lambda n: 0.0, lambda n: 4e-6 + 1e-6 * n])
def test_what_further_context_adds_is_found(monkeypatch: pytest.MonkeyPatch, deepens: Any) -> None:
    costs = measure(monkeypatch, Machine(0.004, CURVES["stock"], deepens=deepens, noise=0.05))
    deep = costs.at(1100)
    assert (deep.depth, deep.at(100).depth) == (1100, 100)
    for n in range(1, 17):
        true = 0.004 * CURVES["stock"](n) + 1000 * deepens(n)
        assert deep.passes[n - 1] == pytest.approx(true, rel=0.05)
        assert deep.at(100).passes[n - 1] == pytest.approx(costs.passes[n - 1])


def test_a_large_model_reads_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = measure(monkeypatch, Machine(0.2, CURVES["stock"], deepens=lambda n: 1e-5))
    assert not costs.deepens
    assert costs.at(1100).passes == costs.passes


def test_with_less_context_costs_stay_positive_and_never_fall() -> None:
    costs = Costs((1.0, 1.2, 1.4), 0.1, 0.0, 0.0, 0.0, depth=1000, deepens=(0.005, 0.001, 0.002))
    shallow = costs.at(0)
    assert min(shallow.passes) > 0
    assert list(shallow.passes) == sorted(shallow.passes)


def test_a_clock_that_wide_passes_lower_does_not_make_plain_steps_look_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(0.004, CURVES["flat"], tired=0.5)
    costs = measure(monkeypatch, machine, max_width=33)
    assert costs.passes[0] == pytest.approx(0.004, rel=0.03)


@pytest.mark.parametrize("busy", [{"others": 1.0}, {"stolen": 0.4}, {"noise": 0.4}])
@pytest.mark.parametrize("plain", [0.004, 0.03])
def test_what_disturbs_is_noticed_and_the_curve_is_that_of_passes_that_got_through(
    monkeypatch: pytest.MonkeyPatch, busy: dict[str, float], plain: float
) -> None:
    busy = {"noise": 0.4, **busy}
    costs = measure(monkeypatch, Machine(plain, CURVES["flat"], **busy), max_width=9)
    assert costs.disturbed
    for n in (1, 2, 4, 8):
        assert costs.passes[n - 1] == pytest.approx(plain * CURVES["flat"](n), rel=0.05)


def test_a_busy_moment_makes_no_change_of_width_look_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are differences of disturbed times: too large a one keeps drafting from being tried."""
    tired = {"noise": 0.4, "tired": 0.5, "wide": 2}
    quiet = measure(monkeypatch, Machine(0.004, CURVES["flat"], tired=0.5, wide=2), max_width=9)
    assert quiet.recovery > 0.0
    busy = measure(monkeypatch, Machine(0.004, CURVES["flat"], others=1.0, **tired), max_width=9)
    assert busy.disturbed
    assert 2.0 * busy.rebuild + busy.recovery < 0.1 * busy.passes[0]


@pytest.mark.parametrize("quiet", [{}, {"others": 0.1}, {"stolen": 0.01}, {"noise": 0.1}])
@pytest.mark.parametrize("plain", [0.004, 0.03, 0.3])
def test_a_quiet_machine_is_not_called_busy(
    monkeypatch: pytest.MonkeyPatch, quiet: dict[str, float], plain: float
) -> None:
    assert not measure(monkeypatch, Machine(plain, CURVES["stock"], **quiet)).disturbed


def test_progress_is_told_and_never_beyond_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float]] = []
    measure(
        monkeypatch,
        Machine(0.02, CURVES["linear"]),
        progress=lambda spent, budget: seen.append((spent, budget)),
    )
    assert len(seen) > 4
    assert all(spent <= budget for spent, budget in seen)


def test_what_was_not_measured_is_interpolated_and_extrapolated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = measure(monkeypatch, Machine(0.001, CURVES["linear"]), max_width=40)
    assert len(costs.passes) == 40
    for n in (10, 11, 20, 33, 40):
        assert costs.verify(n) == pytest.approx(n, rel=0.02)


@pytest.mark.parametrize("at", range(1, 80, 3))
def test_a_pass_that_is_held_up_is_not_what_passes_cost(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A process is stopped, or the machine sleeps: no time to measure is left."""
    machine = Machine(0.01, CURVES["flat"])
    passes = 0
    usual = machine.pass_over

    def held_up(*how: Any, **more: Any) -> None:
        nonlocal passes
        passes += 1
        usual(*how, **more)
        if passes == at:
            machine.now += 60.0

    monkeypatch.setattr(machine, "pass_over", held_up)
    costs = measure(monkeypatch, machine)
    assert costs.passes[0] == pytest.approx(0.01, rel=0.01)
    assert costs.verify(8) == pytest.approx(CURVES["flat"](8), rel=0.05)
