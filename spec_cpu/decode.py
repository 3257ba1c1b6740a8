"""The cycle of speculative decoding: propose, score, verify, commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from spec_cpu.draft.base import Drafter
from spec_cpu.llama.context import Rows
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling import Distribution, Pipeline
from spec_cpu.schedule import Schedule
from spec_cpu.tree import TokenTree
from spec_cpu.verify import Rule, Verdict, verify_chosen, verify_greedy


@dataclass(frozen=True, slots=True)
class Seconds:
    """What a cycle took: drafting, the target's pass, sampling and verifying, and all of it."""

    draft: float
    target: float
    sample: float
    total: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle's outcome.

    Attributes:
        tokens: what it added to the text: `accepted` drafted tokens and one more.
        accepted: how many of them were drafted.
        drafted: how many were proposed.
        overlaps: sum min(p, q) at each position tried.
        rows: rows of the target's logits that were looked at.
    """

    tokens: list[int]
    accepted: int
    drafted: int
    overlaps: list[float]
    rows: int
    seconds: Seconds

    @property
    def tried(self) -> int:
        """Positions reached: the accepted ones, and the one that was rejected."""
        return min(self.accepted + 1, self.drafted)


def cycles(
    target: KVSequence,
    drafter: Drafter | None,
    history: Sequence[int],
    *,
    schedule: Schedule,
    pipeline: Pipeline,
    rule: Rule,
    rng: np.random.Generator,
    max_tokens: int,
) -> Iterator[Cycle]:
    """Continue `history`, a cycle at a time, until `max_tokens` are added or the context is full.

    All of `history` but its last token is in the caches already: that token is fed with the
    first pass, as every cycle feeds the last token of the one before.

    Without a drafter, or where `schedule` says 0, a cycle is a plain step.
    """
    text = list(history)
    end = min(len(text) + max_tokens, target.context.n_ctx)
    while len(text) < end:
        start = perf_counter()
        tree = _propose(drafter, text, end - len(text) - 1, pipeline, rng, schedule)
        drafted = perf_counter()
        logits = target.score([text[-1], *tree.tokens])
        scored = perf_counter()
        p = _Targets(logits, pipeline.recent(text), tree, pipeline)
        verdict = _verify(tree, p, rule, rng)
        tokens = [*tree.tokens[: verdict.accepted], verdict.token]
        overlaps = _overlaps(tree, p, verdict)
        verified = perf_counter()
        _commit(target, drafter, text, tokens)
        schedule.observe(
            len(tree), verdict.accepted, drafted - start, scored - drafted, tree.confidence
        )
        done = perf_counter()
        yield Cycle(
            tokens,
            verdict.accepted,
            len(tree),
            overlaps,
            p.rows or len(tokens),
            Seconds(
                draft=drafted - start + done - verified,
                target=scored - drafted,
                sample=verified - scored,
                total=done - start,
            ),
        )


def _propose(
    drafter: Drafter | None,
    text: Sequence[int],
    room: int,
    pipeline: Pipeline,
    rng: np.random.Generator,
    schedule: Schedule,
) -> TokenTree:
    k = schedule.next_k(room) if drafter else 0
    if drafter is None or k < 1:
        return TokenTree()
    return drafter.propose(text, k, pipeline, rng, schedule)


def _verify(tree: TokenTree, p: _Targets, rule: Rule, rng: np.random.Generator) -> Verdict:
    if p.pipeline.params.greedy:
        return verify_greedy(tree.tokens, p.argmax)
    if tree.q is None:
        return verify_chosen(tree.tokens, p, rng)
    return rule(tree.tokens, p, tree.q, rng)


def _overlaps(tree: TokenTree, p: _Targets, verdict: Verdict) -> list[float]:
    tried = range(min(verdict.accepted + 1, len(tree)))
    if p.pipeline.params.greedy:
        return [float(i < verdict.accepted) for i in tried]
    if tree.q is None:
        return [p[i].prob(tree.tokens[i]) for i in tried]
    return [p[i].overlap(tree.q[i]) for i in tried]


def _commit(
    target: KVSequence, drafter: Drafter | None, text: list[int], tokens: list[int]
) -> None:
    # Each cache holds the text but its last token; what was rejected is forgotten.
    text += tokens
    target.truncate(len(text) - 1)
    if drafter is not None:
        drafter.commit(tokens)


@dataclass(slots=True)
class _Targets(Sequence[Distribution]):
    """p at each position of a scored chain, worked out when a rule first asks for it."""

    logits: Rows
    recent: list[int]
    tree: TokenTree
    pipeline: Pipeline
    _known: dict[int, Distribution] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, i: int) -> Distribution:  # type: ignore[override]
        if i not in self._known:
            self._known[i] = self.pipeline.distribution(self.logits[i], self._history(i))
        return self._known[i]

    @property
    def rows(self) -> int:
        """How many were worked out."""
        return len(self._known)

    def argmax(self, i: int) -> int:
        """The likeliest token at position i."""
        return self.pipeline.argmax(self.logits[i], self._history(i))

    def _history(self, i: int) -> list[int]:
        return [*self.recent, *self.tree.tokens[:i]]
