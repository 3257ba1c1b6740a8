"""Simulated texts, sources and costs for the policy: no model, no clock.

A text is known beforehand; sources say what comes next, rightly or not, and how sure they are. The
engine charges the true costs, in plain steps; what the policy is shown of them may be noisy.
Throughput is tokens a plain step, by the true costs: plain decoding's is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from trees import descend

from spec_cpu import defaults
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle import drafting as drafting_module
from spec_cpu.cycle.drafting import Drafting, Proposal
from spec_cpu.cycle.policy import Policy
from spec_cpu.cycle.verify import Verdict
from spec_cpu.draft.base import Follows, Path, Scored, Shape, Source
from spec_cpu.draft.reader import Reader
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

N_VOCAB = 64
NODES, K = defaults.MAX_TREE_NODES, defaults.MAX_AUTO_DRAFT_TOKENS
WIDTHS = np.arange(1, NODES + 2)
CURVES = {
    "linear": WIDTHS.astype(float),
    "stock": np.interp(WIDTHS, [1, 2, 4, 8, 16, 25], [1, 1.9, 3, 5, 9, 14]),
    "kernel": np.interp(WIDTHS, [1, 2, 4, 8, 16, 25], [1, 1.25, 1.5, 2, 3.2, 4.6]),
    "flat": 1 + 0.02 * (WIDTHS - 1),
}
GREEDY = Pipeline(SamplingParams(temperature=0))
SAMPLED = Pipeline(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0))
PATHS = defaults.TREE_PATHS

Chance = Callable[[int], float]
"""How likely what is said of a position is right; 0: nothing is said there."""
Noise = Callable[[int], tuple[float, float]]
"""The number of a cycle to the factors on the draft's and the target's time that are shown."""


def costs(curve: str, c: float = 0.1, rebuild: float = 0.1, **more: float) -> Costs:
    return Costs(CURVES[curve].tolist(), c, 0.0, rebuild, 0.0, **more)  # type: ignore[arg-type]


def always(chance: float) -> Chance:
    return lambda _at: chance


def in_turn(inside: float, outside: float, period: int = 200, share: float = 0.5) -> Chance:
    return lambda at: inside if at % period < period * share else outside


@dataclass
class Said:
    """Says of each position a token that is right with `chance`, and that it is `sure` of it."""

    chance: Chance
    sure: Chance | None = None
    name: str = "said"
    correlation: float = 0.0
    seed: int = 0
    model = sequence = window = None
    by_features = False

    def take(self, text: Sequence[int]) -> None:
        self.text = text
        rng = np.random.default_rng(self.seed)
        normal = rng.standard_normal(len(text))
        for i in range(1, len(normal)):
            fresh = np.sqrt(1 - self.correlation**2) * normal[i]
            normal[i] = self.correlation * normal[i - 1] + fresh
        order = normal.argsort().argsort()
        self.luck = (order + 0.5) / len(order)
        self.at = 1

    def says(self, path: Path) -> Follows:
        at = self.at + len(path)
        chance = self.chance(at)
        if not chance:
            return ()
        right = self.luck[at] < chance and list(path) == list(self.text[self.at : at])
        sure = chance if self.sure is None else self.sure(at)
        return [((self.text[at] + (not right)) % N_VOCAB, sure)]

    def commit(self, tokens: Sequence[int], _scored: Scored) -> None:
        assert list(tokens) == list(self.text[self.at : self.at + len(tokens)])
        self.at += len(tokens)


class Looked(Said):
    """A source that takes no passes."""

    def follows(self, path: Path) -> Follows:
        return self.says(path)


@dataclass
class Passing(Said):
    """A source that takes passes; `steps`: nodes in each pass of this cycle."""

    name: str = "passing"
    shape: Shape = "tree"
    layers = 1
    paths = PATHS
    ids = None
    steps: list[int] = field(default_factory=list)

    def able(self, _reader: Reader, nodes: int) -> int:
        return nodes

    def expand(self, paths: Sequence[Path], _reader: Reader) -> list[Follows]:
        self.steps.append(len(paths))
        return [self.says(path) for path in paths]

    def logits(self, path: Path) -> NDArray[np.float32]:
        self.steps.append(1)
        row = np.full(N_VOCAB, -20.0, np.float32)
        for token, sure in self.says(path):
            row[:] = np.log(max(1e-9, 1 - sure) / (N_VOCAB - 1))
            row[token] = np.log(max(1e-9, sure))
        return row


@dataclass
class Run:
    """What came of decoding, a number a cycle; seconds are plain steps."""

    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    names: list[list[list[str]]] = field(default_factory=list)

    def rate(self, after: int = 0, before: int = 10**9) -> float:
        """Tokens a plain step between these positions."""
        at = np.cumsum(self.tokens)
        counted = (at > after) & (at <= before)
        return float(np.array(self.tokens)[counted].sum() / np.array(self.seconds)[counted].sum())

    def drafted(self, after: int, before: int) -> NDArray[np.int_]:
        """Nodes in the cycles that ended between these positions."""
        at = np.cumsum(self.tokens)
        return np.array(self.nodes)[(at > after) & (at <= before)]

    @property
    def changes(self) -> int:
        return int((np.diff(self.nodes) != 0).sum())


def policy(true: Costs, *sources: Source, **more: object) -> Policy:
    passes = any(isinstance(source, Passing) for source in sources)
    return Policy(true, most=NODES, deepest=K, passes=passes, **more)  # type: ignore[arg-type]


def proposed(drafting: Drafting, *asked: Any) -> Proposal:
    """What a text that is alone has verified; arguments as for `Drafting.find`."""
    proposal = drafting.find(*asked)
    drafting.choose(proposal)
    return proposal


def play(
    true: Costs,
    sources: Sequence[Said],
    tokens: int,
    *,
    decides: Policy | None = None,
    noise: Noise | None = None,
    pipeline: Pipeline = GREEDY,
    paths: int = PATHS,
    slower: float = 1.0,
    depth: int = 0,
) -> Run:
    """Decode so many tokens; `slower`: times as long as `true` says passes of the draft take."""
    text = np.random.default_rng(1).integers(0, N_VOCAB, tokens + 3 * NODES).tolist()
    for source in sources:
        source.take(text)
    drafting = Drafting(sources, decides or policy(true, *sources))
    passing = next((source for source in sources if isinstance(source, Passing)), None)
    rng = np.random.default_rng(0)
    run, at, last, missed = Run(), 1, 0, 0
    clock = SimpleNamespace(perf_counter=lambda: 0.0)
    real, drafting_module.perf_counter = drafting_module.perf_counter, clock.perf_counter
    try:
        while at <= tokens:
            proposal = proposed(drafting, text[:at], tokens - at, paths, pipeline, rng)
            tree, n = proposal.tree, len(proposal.tree)
            path = descend(tree, text[at : at + NODES + 1])
            steps = passing.steps if passing else []
            draft = sum(true.draft_step + (w - 1) * true.draft_read for w in steps)
            if steps:
                draft += true.draft_catch_up + true.reading(missed)
            draft *= slower
            target = true.passes[n] + (n != last) * true.rebuild
            slow_draft, slow_target = noise(len(run.tokens)) if noise else (1.0, 1.0)
            added = text[at : at + len(path) + 1]
            proposal.seconds = draft * slow_draft
            verdict = Verdict(path, added[-1])
            seconds = target * slow_target
            scored = Scored([], np.empty((0, 0), np.float32))
            drafting.settle(proposal, verdict, added, scored, seconds, depth)
            recovering = (n > 0 and last == 0) * true.recovery  # plain steps later on will take
            run.tokens.append(len(added))
            run.seconds.append(draft + target + recovering + true.row * len(added))
            run.nodes.append(n)
            run.depths.append(max(tree.depths, default=0))
            run.passes.append(len(steps))
            run.names.append(proposal.names)
            missed = 0 if steps else missed + len(added)
            steps.clear()
            last, at = n, at + len(added)
    finally:
        drafting_module.perf_counter = real
    return run


def busy(seed: int) -> Noise:
    """Passes vary by 3 %; another program makes all of them 3 times as slow for a while, and some
    single ones."""
    rng = np.random.default_rng(seed)
    log = np.zeros(2000)
    i = 0
    while i < len(log):
        i += int(rng.integers(20, 80))
        length = int(rng.integers(3, 25))
        log[i : i + length] = np.log(3)
        i += length
    both = log[:, None] + 0.03 * rng.standard_normal((2000, 2))
    both[:, 1] += np.log(3) * (rng.random(2000) < 0.03)
    return lambda i: (exp(both[i, 0]), exp(both[i, 1]))
