"""Which of several drafters drafts: simulated texts and costs, no model and no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from spec_cpu import defaults
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle, cycles
from spec_cpu.cycle.drafting import Drafting
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.schedule import Scheduler
from spec_cpu.cycle.schedule_base import Outcome, Schedule
from spec_cpu.cycle.verify import RULES
from spec_cpu.cycle.weigh import Weigher
from spec_cpu.draft.tree import TokenTree
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

N_VOCAB = 16
NODES, K = defaults.MAX_TREE_NODES, defaults.MAX_AUTO_DRAFT_TOKENS
WIDTHS = np.arange(1, NODES + 2)
CURVES = {
    "stock": np.interp(WIDTHS, [1, 2, 4, 8, 16, 25], [1, 1.9, 3, 5, 9, 14]),
    "kernel": np.interp(WIDTHS, [1, 2, 4, 8, 16, 25], [1, 1.25, 1.5, 2, 3.2, 4.6]),
    "flat": 1 + 0.02 * (WIDTHS - 1),
}
PIPELINE = Pipeline(SamplingParams(temperature=0))

Chance = Callable[[int], float]
"""How likely the token at a position is drafted rightly; 0: nothing is found there. If it is
negative the drafter says the opposite number, and is always wrong."""


def costs(curve: str, c: float = 0.1, rebuild: float = 0.1) -> Costs:
    return Costs(CURVES[curve].tolist(), c, 0.0, rebuild, 0.0, draft_read=c / 5, draft_window=64)


class Target:
    """Writes `text`, whatever is proposed."""

    paths = defaults.TREE_PATHS
    room = 99

    def __init__(self, text: Sequence[int]) -> None:
        self.text = text
        self.context = SimpleNamespace(n_ctx=len(text))
        self._at = 1

    def score_tree(self, _root: int, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        depths = [0, *TokenTree([*tokens], None, [], [*parents]).depths]
        rows = np.zeros((len(tokens) + 1, N_VOCAB), np.float32)
        rows[np.arange(len(depths)), [self.text[self._at + depth] for depth in depths]] = 1.0
        return rows

    def keep(self, path: Sequence[int]) -> None:
        self._at += len(path) + 1


@dataclass
class Drafter:
    """Drafts a chain whose tokens are right with such chances, and says so."""

    name: str
    free: bool
    text: Sequence[int]
    chance: Chance
    begun: int = 0
    model = sequence = window = None
    by_features = False

    def __post_init__(self) -> None:
        self.committed: list[int] = []
        self.luck = np.random.default_rng(self.free).random(len(self.text))

    def propose(
        self, history: Sequence[int], k: int, _pipeline: object, _rng: object, schedule: Schedule
    ) -> TokenTree:
        assert self.committed == [*history[1:]]
        self.begun += 1
        tree, reach = TokenTree(), 1.0
        for at in range(len(history), len(history) + k):
            chance = self.chance(at)
            if (
                not chance
                if self.free
                else not schedule.worth_another(len(tree), reach, abs(chance))
            ):
                break
            right = self.luck[at] < chance
            tree.append((self.text[at] + (not right)) % N_VOCAB, None, abs(chance))
            reach *= schedule.acceptance(abs(chance))
        return tree

    def commit(self, tokens: Sequence[int], _features: object = None) -> None:
        self.committed += tokens


def never(_at: int) -> float:
    return 0.0


def wrong(_at: int) -> float:
    return -0.95


def always(chance: float) -> Chance:
    return lambda _at: chance


def at_times(inside: float, outside: float, period: int = 200, share: float = 0.5) -> Chance:
    return lambda at: inside if at % period < period * share else outside


@dataclass
class Run:
    """What was decoded and how long it took, in plain steps."""

    done: list[Cycle]
    seconds: float

    @property
    def rate(self) -> float:
        return sum(len(cycle.tokens) for cycle in self.done) / self.seconds

    def drafted_by(self, name: str | None, where: Callable[[int], bool] = lambda _at: True) -> int:
        """Cycles of that drafter which began at such positions."""
        at = np.cumsum([1, *(len(cycle.tokens) for cycle in self.done)])
        return sum(
            cycle.drafter == name and where(a) for a, cycle in zip(at, self.done, strict=False)
        )


def play(
    true: Costs,
    tokens: int,
    *,
    ngram: Chance | None = None,
    model: Chance | None = None,
    k: int | None = None,
) -> Run:
    """Write a text with the drafters that there are."""
    text = np.random.default_rng(1).integers(0, N_VOCAB, tokens + 2 * NODES).tolist()
    drafting = []
    for name, chance, kind, most in (
        ("ngram", ngram, partial(Weigher, free=True), NODES),
        ("model", model, Scheduler, K),
    ):
        if chance is not None:
            share = 0.5 if ngram and model else 1.0
            schedule = (
                Pinned(k) if k is not None else kind(true, k_max=most, repeatable=True, share=share)
            )
            drafting.append(Drafting(Drafter(name, name == "ngram", text, chance), schedule))
    done = list(
        cycles(
            Target(text),
            drafting,
            text[:1],
            pipeline=PIPELINE,
            rule=RULES["block"],
            rng=np.random.default_rng(0),
            max_tokens=tokens,
        )
    )
    assert [token for cycle in done for token in cycle.tokens] == text[1 : tokens + 1]
    return Run(done, seconds(done, true))


def seconds(done: Sequence[Cycle], true: Costs) -> float:
    total, last, missed = 0.0, 0, 0
    for cycle in done:
        n = cycle.drafted
        total += true.passes[n] + (n != last) * true.rebuild
        missed += len(cycle.tokens)
        if cycle.drafter == "model":
            total += true.drafting(n) + true.reading(missed - len(cycle.tokens))
            missed = 0
        last = n
    return total


TEXTS = {
    "both good": (always(0.9), always(0.8)),
    "only copied": (always(0.95), always(0.2)),
    "only the model": (never, always(0.8)),
    "weak matches": (always(0.3), always(0.75)),
    "lies": (always(0.1), always(0.1)),
    "nothing": (never, always(0.05)),
    "in turns": (at_times(0.97, 0.0), at_times(0.3, 0.8)),
    "in short turns": (at_times(0.97, 0.0, 40), always(0.7)),
    "rarely copied": (at_times(0.97, 0.0, 400, 0.1), always(0.7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("rebuild", [0.0, 0.3])
@pytest.mark.parametrize("kind", list(TEXTS))
def test_two_drafters_do_about_as_well_as_the_better_of_them(
    curve: str, rebuild: float, kind: str
) -> None:
    """What is lost is the trying of the other one, and the catching up for it."""
    ngram, model = TEXTS[kind]
    true = costs(curve, rebuild=rebuild)
    alone = max(play(true, 2000, ngram=ngram).rate, play(true, 2000, model=model).rate, 1.0)
    assert play(true, 2000, ngram=ngram, model=model).rate >= 0.9 * alone


@pytest.mark.parametrize("curve", ["kernel", "flat"])
def test_of_a_text_that_is_copied_in_parts_each_drafts_what_it_is_better_at(curve: str) -> None:
    ngram, model = TEXTS["in turns"]
    true = costs(curve)
    both = play(true, 3000, ngram=ngram, model=model)
    alone = max(play(true, 3000, ngram=ngram).rate, play(true, 3000, model=model).rate)
    assert both.rate >= 1.2 * alone
    copied: Callable[[int], bool] = lambda at: at % 200 < 100  # noqa: E731
    free: Callable[[int], bool] = lambda at: at % 200 >= 100  # noqa: E731
    assert both.drafted_by("ngram", copied) >= 5 * both.drafted_by("model", copied)
    assert both.drafted_by("model", free) >= 5 * both.drafted_by("ngram", free)


@pytest.mark.parametrize("better", ["ngram", "model"])
def test_the_better_record_wins(better: str) -> None:
    chances = {"ngram": always(0.5), "model": always(0.5), better: always(0.95)}
    run = play(costs("kernel"), 1500, **chances)
    assert run.drafted_by(better) >= 0.9 * len(run.done)


@pytest.mark.parametrize("curve", list(CURVES))
def test_where_nothing_is_found_the_model_drafts_as_if_it_were_alone(curve: str) -> None:
    true = costs(curve)
    alone, both = (
        play(true, 2000, model=always(0.8)),
        play(true, 2000, ngram=never, model=always(0.8)),
    )
    assert both.rate >= 0.99 * alone.rate


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("rebuild", [0.0, 0.4])
@pytest.mark.parametrize(("tokens", "least"), [(256, 0.97), (600, 0.98)])
def test_two_that_are_always_wrong_lose_no_more_than_their_purses(
    curve: str, rebuild: float, tokens: int, least: float
) -> None:
    """Also where both say that they are sure."""
    run = play(costs(curve, rebuild=rebuild), tokens, ngram=wrong, model=wrong)
    assert run.rate >= least


def decoded(text: list[int], *drafting: Drafting) -> list[Cycle]:
    """150 tokens of `text` from its first."""
    return list(
        cycles(
            Target(text),
            drafting,
            text[:1],
            pipeline=PIPELINE,
            rule=RULES["block"],
            rng=np.random.default_rng(0),
            max_tokens=150,
        )
    )


def test_a_model_that_is_not_preferred_does_nothing() -> None:
    text = np.random.default_rng(2).integers(0, N_VOCAB, 200).tolist()
    ngram, model = (
        Drafter("ngram", True, text, at_times(0.99, 0.0, 40)),
        Drafter("model", False, text, always(0.5)),
    )
    done = decoded(text, Drafting(ngram, Pinned(4)), Drafting(model, Pinned(4)))
    used = [cycle.drafter for cycle in done]
    assert {"ngram", "model"} <= {*used}
    assert model.begun == used.count("model")
    assert model.committed == ngram.committed == text[1:151]


class Declining(Pinned):
    """Promises more than any other, and takes back whatever is proposed."""

    def next_k(self, room: int) -> int:
        k = super().next_k(room)
        self.promise = 1e9
        return k

    def worth(self, tree: TokenTree) -> int:
        return 0


def test_what_was_looked_up_stands_in_for_a_draft_that_is_taken_back() -> None:
    text = np.random.default_rng(2).integers(0, N_VOCAB, 200).tolist()
    ngram = Drafter("ngram", True, text, always(0.9))
    model = Drafter("model", False, text, always(0.5))
    done = decoded(text, Drafting(ngram, Pinned(4)), Drafting(model, Declining(4)))
    assert {cycle.drafter for cycle in done[:-1]} == {"ngram"}
    assert model.begun


def test_pinned_the_look_up_drafts_where_it_finds_more_than_the_model_brings() -> None:
    ngram, model = at_times(0.99, 0.0), always(0.4)
    run = play(costs("kernel"), 2000, ngram=ngram, model=model, k=4)
    copied: Callable[[int], bool] = lambda at: at % 200 < 100  # noqa: E731
    assert run.drafted_by("ngram", copied) > 0.95 * run.drafted_by("ngram")
    assert run.drafted_by("ngram", copied) > 5 * run.drafted_by("model", copied)
    assert run.drafted_by(None) <= 1, "the last token at most"
    weak = play(costs("kernel"), 2000, ngram=always(0.2), model=always(0.8), k=4)
    assert weak.drafted_by("model") > 0.9 * len(weak.done)


def test_a_free_draft_is_judged_even_where_it_is_not_used() -> None:
    """The text says what would have become of it."""

    class Heard(Pinned):
        def __init__(self, promise: float) -> None:
            super().__init__(2)
            self.heard: list[Outcome] = []
            self.fixed = promise

        promise = property(lambda self: self.fixed, lambda *_: None)

        def observe(self, outcome: Outcome) -> None:
            self.heard.append(outcome)

    text = np.random.default_rng(2).integers(0, N_VOCAB, 80).tolist()
    less, more = Heard(1.0), Heard(2.0)
    drafting = [
        Drafting(Drafter("ngram", True, text, always(1.0)), less),
        Drafting(Drafter("model", False, text, always(1.0)), more),
    ]
    done = cycles(
        Target(text),
        drafting,
        text[:1],
        pipeline=PIPELINE,
        rule=RULES["block"],
        rng=np.random.default_rng(0),
        max_tokens=30,
    )
    assert {cycle.drafter for cycle in done} == {"model"}
    for mine, its in zip(less.heard, more.heard, strict=True):
        assert (mine.own, its.own) == (False, True)
        assert mine.drafted == its.drafted == its.accepted == 2
        assert mine.tried == its.tried == [(1.0, True), (1.0, True)]
