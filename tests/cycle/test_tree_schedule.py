"""Trees under the weigher: simulated drafts of a known text, simulated costs, no model, no clock.

At each position of a text the draft gives the likeliest tokens with probabilities, and the target's
token is each of them as often as it says. Where the tree has left the text the draft goes on being
as sure as anywhere. Throughput is tokens a plain step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.acceptance import Probability
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.schedule import Scheduler
from spec_cpu.cycle.schedule_base import Outcome, Schedule
from spec_cpu.cycle.weigh import Weigher
from spec_cpu.draft.growth import Follows, grow
from spec_cpu.draft.tree import ROOT, TokenTree

K = 24
WIDTHS = np.arange(1, K + 2)
CURVES = {
    "linear": WIDTHS.astype(float),
    "stock": np.interp(WIDTHS, [1, 2, 4, 8, 16, 25], [1, 1.9, 3, 5, 9, 14]),
    "kernel": np.interp(WIDTHS, [1, 2, 4, 8, 16, 25], [1, 1.25, 1.5, 2, 3.2, 4.6]),
    "flat": 1 + 0.02 * (WIDTHS - 1),
}
HEAD = Costs([1.0], 0.05, 0.0, 0.05, 0.01, draft_read=0.005, draft_window=64)
CATCHING_UP = replace(HEAD, draft_catch_up=0.1)
MODEL = Costs([1.0], 0.2, 0.0, 0.05, 0.01, draft_read=0.05, draft_window=64)
SURE, MIXED, UNSURE, WRONG = 12.0, 2.0, 0.7, 0.0
BREADTH = 8


def costs(curve: str, draft: Costs = HEAD, rebuild: float = 0.05) -> Costs:
    return replace(draft, passes=CURVES[curve].tolist(), rebuild=rebuild)


@dataclass(frozen=True)
class Text:
    """At each position the draft's probabilities, descending, and which of them is right."""

    chances: NDArray[np.float64]
    right: NDArray[np.intp]  # BREADTH: none of them


def text(sharpness: Sequence[float], seed: int) -> Text:
    """The larger, the surer; 0: a draft that is as sure as any and always wrong."""
    rng = np.random.default_rng(seed)
    chances, right = [], []
    for sharp in sharpness:
        logits = np.sort(rng.exponential(sharp or MIXED, 40))[::-1]
        p = np.exp(logits - logits[0])
        p /= p.sum()
        chances.append(p[:BREADTH])
        drawn = int(rng.choice(len(p), p=p)) if sharp else BREADTH
        right.append(min(drawn, BREADTH))
    return Text(np.array(chances), np.array(right))


class Draft:
    """Drafts from position `at` of a text; a token is its rank. Counts what it is asked for."""

    def __init__(self, of: Text, at: int) -> None:
        self.seconds: list[int] = []  # nodes in each pass
        self._text = of
        self._at = at

    def root(self) -> Follows:
        self.seconds.append(1)
        return self._follows(self._at)

    def expand(self, fed: TokenTree, new: range) -> list[Follows]:
        self.seconds.append(len(new))
        return [self._follows(self._at + len(fed.path(node))) for node in new]

    def _follows(self, position: int) -> Follows:
        return list(enumerate(self._text.chances[position % len(self._text.right)].tolist()))

    def took(self, true: Costs, missed: int) -> float:
        if not self.seconds:
            return 0.0
        more = sum(self.seconds) - len(self.seconds)
        steps = len(self.seconds) * true.draft_step
        return true.draft_catch_up + steps + more * true.draft_read + true.reading(missed)


@dataclass
class Run:
    """What came of decoding a text, a number a cycle."""

    tokens: list[int]
    seconds: list[float]
    nodes: list[int]
    depths: list[int]
    passes: list[int]

    @property
    def throughput(self) -> float:
        return sum(self.tokens) / sum(self.seconds)


def trees(
    schedule: Schedule, true: Costs, of: Text, tokens: int, paths: int = 8, overhead: float = 1.0
) -> Run:
    """Decode with trees; `overhead`: how many times as long as `true` says the draft takes."""
    run = Run([], [], [], [], [])
    at = last = missed = 0
    while at < tokens:
        draft = Draft(of, at)
        k = schedule.next_k(tokens - at)
        tree, _ = grow(draft, k, schedule, ends=frozenset({-1}), paths=paths) if k else NOTHING
        n = schedule.worth(tree)
        follows = tree.descend(of.right[at : at + K].tolist())
        accepted = sum(node < n for node in follows)
        drafting = draft.took(true, missed) * overhead
        passed = true.passes[n] + (n != last) * true.rebuild
        reached = [ROOT, *follows[: accepted + 1]]
        tried = [
            (tree.confidence[child], child in follows)
            for node in reached[: accepted + 1]
            for child in tree.children(node)
        ]
        schedule.observe(Outcome(n, accepted, drafting, passed, tried))
        run.tokens.append(accepted + 1)
        recovering = (n > 0 and last == 0) * true.recovery  # plain steps later on will take
        run.seconds.append(drafting + passed + recovering + true.row * (accepted + 1))
        run.nodes.append(n)
        run.depths.append(max(tree.depths[:n], default=0))
        run.passes.append(len(draft.seconds))
        missed = 0 if draft.seconds else missed + accepted + 1
        last = n
        at += accepted + 1
    return run


NOTHING = (TokenTree(), TokenTree())


def chains(true: Costs, of: Text, tokens: int) -> float:
    """Throughput of a greedy chain under the scheduler, which may cut it by confidence."""
    schedule = Scheduler(true, k_max=12)
    at = last = missed = 0
    seconds = 0.0
    while at < tokens:
        k = schedule.next_k(tokens - at)
        drafted, reach = 0, 1.0
        while drafted < k:
            sure = float(of.chances[(at + drafted) % len(of.right)][0])
            if not schedule.worth_another(drafted, reach, sure):
                break
            reach *= schedule.acceptance(sure)
            drafted += 1
        hits = of.right[at : at + drafted] == 0
        accepted = drafted if hits.all() else int(hits.argmin())
        drafting = true.drafting(drafted) + (true.reading(missed) if drafted else 0.0)
        passed = true.passes[drafted] + (drafted != last) * true.rebuild
        sures = of.chances[at : at + accepted + 1, 0].tolist()
        tried = [(sure, i < accepted) for i, sure in enumerate(sures[:drafted])]
        schedule.observe(Outcome(drafted, accepted, drafting, passed, tried))
        seconds += drafting + passed + true.row * (accepted + 1)
        missed = 0 if drafted else missed + 1
        last = drafted
        at += accepted + 1
    return at / seconds


def weigher(true: Costs, *, repeatable: bool = False) -> Weigher:
    return Weigher(true, k_max=K, repeatable=repeatable, calibration=Probability())


def played(true: Costs, sharpness: Sequence[float], tokens: int = 800, seeds: int = 4) -> list[Run]:
    return [trees(weigher(true), true, text(sharpness, seed), tokens) for seed in range(seeds)]


def mean(runs: Sequence[Run]) -> float:
    return float(np.mean([run.throughput for run in runs]))


def plain(true: Costs) -> float:
    return 1.0 / (1.0 + true.row)


@pytest.mark.slow
@pytest.mark.parametrize("catch_up", [0.0, 0.3, 0.6, 0.9])
def test_what_a_cycle_begins_with_is_counted_once(catch_up: float) -> None:
    """Costs that hold stay as they were given, however the first pass differs from others."""
    true = replace(costs("flat"), draft_catch_up=catch_up)
    for sharpness in (SURE, MIXED):
        learning = mean(played(true, [sharpness] * 800))
        given = trees(weigher(true, repeatable=True), true, text([sharpness] * 800, 0), 800)
        assert learning >= 0.97 * max(given.throughput, plain(true))


@pytest.mark.slow
@pytest.mark.parametrize("draft", [HEAD, CATCHING_UP, MODEL], ids=["head", "catching up", "model"])
@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("rebuild", [0.05, 0.5])
@pytest.mark.parametrize("recovery", [0.0, 0.5])
def test_it_is_never_slower_than_0_98_of_plain_decoding(
    curve: str, draft: Costs, rebuild: float, recovery: float
) -> None:
    """With a draft that is sure and always wrong, from the start or when it has earned trust."""
    true = replace(costs(curve, draft, rebuild), recovery=recovery)
    for tokens in (256, 700):
        assert mean(played(true, [WRONG] * 800, tokens, seeds=1)) >= 0.98 * plain(true)
    turning = played(true, [SURE] * 150 + [WRONG] * 800, 700)
    assert min(run.throughput for run in turning) >= 0.98 * plain(true)


@pytest.mark.slow
@pytest.mark.parametrize("draft", [HEAD, MODEL], ids=["head", "model"])
@pytest.mark.parametrize("curve", ["kernel", "flat"])
@pytest.mark.parametrize("sharpness", [MIXED, 4.0, SURE])
def test_at_temperature_0_trees_bring_what_chains_do_or_more(
    curve: str, draft: Costs, sharpness: float
) -> None:
    """What `--shape auto` rests on."""
    true = costs(curve, draft)
    seeds = range(4)
    chained = np.mean([chains(true, text([sharpness] * 900, seed), 800) for seed in seeds])
    assert mean(played(true, [sharpness] * 900)) >= chained


def test_the_shape_follows_from_the_costs() -> None:
    """Nothing where V is linear, a chain where it is steep, a wide tree where it is flat."""
    spread = {}
    for curve in CURVES:
        (run,) = played(costs(curve), [MIXED] * 900, seeds=1)
        spread[curve] = sum(run.nodes) - sum(run.depths)
        if curve in ("linear", "stock"):
            assert np.mean(run.nodes) < 0.05
    assert spread["linear"] <= spread["kernel"] < spread["flat"] / 5
    (run,) = played(costs("stock"), [SURE] * 900, seeds=1)
    assert sum(run.nodes) == sum(run.depths) > 100, "a chain"


def test_a_dear_pass_of_the_draft_is_taken_less_often() -> None:
    passes = [
        np.mean(played(costs("flat", replace(HEAD, draft_step=c)), [MIXED] * 600, 500)[0].passes)
        for c in (0.01, 0.1, 0.4)
    ]
    assert passes == sorted(passes, reverse=True)
    assert passes[0] > passes[-1] + 1


def test_a_draft_that_was_given_up_is_tried_again() -> None:
    true = costs("kernel")
    sharpness = [4.0] * 200 + [WRONG] * 200 + [4.0] * 900
    for run in played(true, sharpness, 1100):
        position = np.cumsum(run.tokens)
        nodes = np.array(run.nodes)
        assert nodes[(position > 250) & (position < 400)].mean() < 0.3
        late = position > 700
        assert np.array(run.tokens)[late].sum() / np.array(run.seconds)[late].sum() > 1.4


def test_where_nothing_pays_it_says_why_and_naps() -> None:
    schedule = weigher(costs("kernel"))
    run = trees(schedule, costs("kernel"), text([WRONG] * 600, 0), 500)
    assert schedule.reason is not None
    assert "too few tokens are accepted" in schedule.reason
    assert np.mean(np.array(run.passes) > 0) < 0.25
    hopeless = weigher(costs("linear", replace(HEAD, draft_step=1.0)))
    assert hopeless.hopeless
    assert hopeless.next_k(9) == 0


def test_repeatable_choices_do_not_depend_on_time() -> None:
    of, true = text([MIXED] * 500, 3), costs("kernel")
    runs = [
        trees(weigher(true, repeatable=True), true, of, 400, overhead=overhead)
        for overhead in (1.0, 9.0)
    ]
    assert runs[0].nodes == runs[1].nodes


def test_a_draft_slower_than_measured_is_found_out() -> None:
    """Its passes take four times as long as was measured, through other work between them."""
    true = costs("flat", replace(HEAD, draft_step=0.1))
    of = text([MIXED] * 900, 0)
    found = trees(weigher(true), true, of, 800, overhead=4.0)
    blind = trees(weigher(true, repeatable=True), true, of, 800, overhead=4.0)
    assert found.throughput > blind.throughput


@pytest.mark.parametrize("curve", ["stock", "kernel"])
@pytest.mark.parametrize("sharpness", [UNSURE, WRONG])
def test_so_is_one_whose_trees_are_not_worth_scoring(curve: str, sharpness: float) -> None:
    true = costs(curve)
    run = trees(weigher(true), true, text([sharpness] * 900, 1), 800, overhead=4.0)
    assert sum(n == 0 for n in run.nodes) > 700
    assert run.throughput >= 0.97 * plain(true)


def test_a_confidence_that_is_wrong_by_a_factor_is_set_right() -> None:
    calibration = Probability()
    assert [calibration.acceptance(p) for p in (0.001, 0.3, 1.0)] == [0.001, 0.3, 1.0]
    rng = np.random.default_rng(0)
    said = []
    for p in rng.choice([0.8, 0.3, 0.02, 0.001], 100_000):
        calibration.count([(float(p), bool(rng.random() < p / 2))])
        said.append([calibration.acceptance(p) for p in (0.8, 0.3, 0.02)])
    np.testing.assert_allclose(np.mean(said[2000:], axis=0), [0.4, 0.15, 0.01], rtol=0.15)
    assert calibration.acceptance(0.017) < calibration.acceptance(0.02), "in proportion"


def test_a_scheduler_and_a_pinned_k_can_grow_trees_too() -> None:
    of, true = text([SURE] * 300, 0), costs("flat")
    run = trees(Scheduler(true, k_max=K), true, of, 200)
    assert max(run.nodes) > 1
    pinned = trees(Pinned(6), true, of, 200)
    assert set(pinned.nodes[:-6]) == {6}
