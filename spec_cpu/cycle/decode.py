"""The cycle of speculative decoding: propose, score, verify, commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from spec_cpu.cycle.drafting import Drafting, Part
from spec_cpu.cycle.verify import Rule, Verdict, acceptance, verify_greedy
from spec_cpu.draft.base import Scored
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.llama.context import Rows
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import Distribution, Pipeline


@dataclass(frozen=True, slots=True)
class Seconds:
    """What a cycle took: drafting, the target's pass, sampling and keeping, and all."""

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
        context: tokens of text before it.
        overlaps: at each position tried the chance of an acceptance there: sum min(p, q).
        rows: rows of the target's logits that were looked at.
        parts: what each source had in it, by its name; nothing for a plain step.
    """

    tokens: list[int]
    accepted: int
    drafted: int
    depth: int
    context: int
    overlaps: list[float]
    rows: int
    seconds: Seconds
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        """Positions reached: the accepted ones, and the one where all was rejected."""
        return len(self.overlaps)


def cycles(
    target: KVSequence,
    drafting: Drafting,
    history: Sequence[int],
    *,
    pipeline: Pipeline,
    rule: Rule,
    rng: np.random.Generator,
    max_tokens: int,
) -> Iterator[Cycle]:
    """Continue `history`, a cycle at a time, until `max_tokens` are added or the context is full.

    All of `history` but its last token is in the caches already: that token is fed with the
    first pass, as every cycle feeds the last token of the one before.

    Where there is nothing to draft from, or it would not pay, a cycle is a plain step.
    """
    text = list(history)
    end = min(len(text) + max_tokens, target.context.n_ctx)
    while len(text) < end:
        start = perf_counter()
        room = min(end - len(text) - 1, target.room - 1)
        proposal = drafting.propose(text, room, target.paths, pipeline, rng)
        tree = proposal.tree
        drafted = perf_counter()
        logits = target.score_tree(text[-1], tree.tokens, tree.parents)
        scored = perf_counter()
        p = _Targets(logits, pipeline.recent(text), tree, pipeline)
        verdict = _verify(tree, p, rule, rng)
        tokens = [*(tree.tokens[node] for node in verdict.path), verdict.token]
        overlaps = _overlaps(tree, p, verdict, rule)
        # The cache holds the text but its last token; what was rejected is forgotten.
        context, fed = len(text), [text[-1], *tree.tokens]
        text += tokens
        target.keep(verdict.path)
        verified = perf_counter()
        features = target.hidden(verdict.path) if drafting.by_features else None
        learnt = Scored(fed, logits, features)
        drafting.settle(proposal, verdict, tokens, learnt, scored - drafted, context)
        done = perf_counter()
        yield Cycle(
            tokens,
            verdict.accepted,
            len(tree),
            max(tree.depths, default=0),
            context,
            overlaps,
            p.rows or len(tokens),
            Seconds(
                draft=drafted - start + done - verified,
                target=scored - drafted,
                sample=verified - scored,
                total=done - start,
            ),
            proposal.parts(verdict),
        )


def _verify(tree: TokenTree, p: _Targets, rule: Rule, rng: np.random.Generator) -> Verdict:
    if p.pipeline.params.greedy:
        return verify_greedy(tree, p.argmax)
    return rule.verify(tree, p, rng)


def _overlaps(tree: TokenTree, p: _Targets, verdict: Verdict, rule: Rule) -> list[float]:
    if not tree.tokens:
        return []
    tried = [node for node in (ROOT, *verdict.path) if tree.children(node)]
    if p.pipeline.params.greedy or not rule.exact:  # nothing is left to chance
        return [float(i < verdict.accepted) for i in range(len(tried))]
    return [acceptance(tree, node, p[node + 1]) for node in tried]


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
        if not self.pipeline.penalizes:
            return []
        return [*self.recent, *(self.tree.tokens[node] for node in self.tree.path(i - 1))]
