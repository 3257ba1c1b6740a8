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
from spec_cpu.schedule import Outcome, Schedule
from spec_cpu.tree import ROOT, TokenTree
from spec_cpu.verify import Rule, Verdict, acceptance, verify_greedy


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
        drafted: how many were scored beside the last one of the text.
        depth: the most of them that could have been accepted; in a chain all.
        overlaps: at each position tried the chance of an acceptance there: sum min(p, q).
        rows: rows of the target's logits that were looked at.
    """

    tokens: list[int]
    accepted: int
    drafted: int
    depth: int
    overlaps: list[float]
    rows: int
    seconds: Seconds

    @property
    def tried(self) -> int:
        """Positions reached: the accepted ones, and the one where all was rejected."""
        return len(self.overlaps)


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
        proposal = _propose(drafter, text, end - len(text) - 1, pipeline, rng, schedule)
        tree = proposal.pruned(
            nodes=min(schedule.worth(proposal), target.room - 1),
            depth=end - len(text) - 1,
            paths=target.paths,
        )
        drafted = perf_counter()
        logits = target.score_tree(text[-1], tree.tokens, tree.parents)
        scored = perf_counter()
        p = _Targets(logits, pipeline.recent(text), tree, pipeline)
        verdict = _verify(tree, p, rule, rng)
        tokens = [*(tree.tokens[node] for node in verdict.path), verdict.token]
        overlaps = _overlaps(tree, p, verdict, rule)
        verified = perf_counter()
        _commit(target, drafter, text, verdict, tokens)
        schedule.observe(
            Outcome(
                len(tree),
                verdict.accepted,
                drafted - start,
                scored - drafted,
                _tried(proposal, verdict, tokens),
            )
        )
        done = perf_counter()
        yield Cycle(
            tokens,
            verdict.accepted,
            len(tree),
            max(tree.depths, default=0),
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
        return verify_greedy(tree, p.argmax)
    return rule.verify(tree, p, rng)


def _overlaps(tree: TokenTree, p: _Targets, verdict: Verdict, rule: Rule) -> list[float]:
    tried = [node for node in (ROOT, *verdict.path) if tree.children(node)]
    if p.pipeline.params.greedy or not rule.exact:  # nothing is left to chance
        return [float(i < verdict.accepted) for i in range(len(tried))]
    return [acceptance(tree, node, p[node + 1]) for node in tried]


def _tried(tree: TokenTree, verdict: Verdict, tokens: list[int]) -> list[tuple[float, bool]]:
    """How sure the drafter was of each node that was reached, and whether it stayed.

    Of chosen tokens even those that were not scored: the text says what would have become of them.
    """
    if not tree.confidence:
        return []
    follows = tree.descend(tokens) if tree.q is None else verdict.path
    stayed = set(follows)
    return [
        (tree.confidence[child], child in stayed)
        # As far as the text goes: what would have followed its last token is not known yet.
        for node, _ in zip((ROOT, *follows), tokens, strict=False)
        for child in tree.children(node)
    ]


def _commit(
    target: KVSequence,
    drafter: Drafter | None,
    text: list[int],
    verdict: Verdict,
    tokens: list[int],
) -> None:
    # Each cache holds the text but its last token; what was rejected is forgotten.
    text += tokens
    target.keep(verdict.path)
    if drafter is not None:
        features = target.hidden(verdict.path) if drafter.feature_rows else None
        drafter.commit(tokens, features)


@dataclass(slots=True)
class _Targets(Sequence[Distribution]):
    """p after the text and after each node, worked out when a rule first asks for it."""

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
        """The likeliest token by row i."""
        return self.pipeline.argmax(self.logits[i], self._history(i))

    def _history(self, i: int) -> list[int]:
        if not self.pipeline.params.penalizes:
            return []
        return [*self.recent, *(self.tree.tokens[node] for node in self.tree.path(i - 1))]
