"""The cycle of speculative decoding: propose, score, verify, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeAlias

import numpy as np

from spec_cpu.cycle.drafting import Drafting, Part, Proposal
from spec_cpu.cycle.verify import Rule, Verdict, acceptance, verify_greedy
from spec_cpu.draft.base import Scored
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.llama.context import Rows
from spec_cpu.llama.sequence import KVSequence, score_trees
from spec_cpu.sampling.logprobs import Logprobs, logprobs
from spec_cpu.sampling.pipeline import Distribution, Pipeline


@dataclass(frozen=True, slots=True)
class Seconds:
    """What a cycle took: drafting, its part of the target's pass, sampling and keeping, and all."""

    draft: float
    target: float
    sample: float

    @property
    def total(self) -> float:
        return self.draft + self.target + self.sample


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle's outcome for a text.

    Attributes:
        tokens: what it added to the text: `accepted` drafted tokens and one more.
        accepted: how many of them were drafted.
        drafted: how many were scored beside the last one of the text.
        depth: the most of them that could have been accepted; in a chain all.
        context: tokens of text before it.
        overlaps: at each position tried the chance of an acceptance there: sum min(p, q).
        rows: rows of the target's logits that were looked at.
        parts: what each source had in it, by its name; nothing for a plain step.
        tree: what was drafted. `names`: who proposed each node. `path`: the nodes that stayed.
        logprobs: of each of `tokens`, where the text is asked for them.
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
    tree: TokenTree = field(default_factory=TokenTree)
    names: Sequence[Sequence[str]] = ()
    path: Sequence[int] = ()
    logprobs: Sequence[Logprobs] = ()

    @property
    def tried(self) -> int:
        """Positions reached: the accepted ones, and the one where all was rejected."""
        return len(self.overlaps)


@dataclass(slots=True)
class Text:
    """A text that is being continued, and what continues it.

    All of it but the last token is in the caches of `target` and of the sources: that token is fed
    with the next pass, as every cycle feeds the last token of the one before.

    Attributes:
        end: the most tokens that it may have, those that it began with among them.
        logprobs: how many of the likeliest tokens to name at each position; None: none, and no
            log probabilities.
        paths: of its drafts, at most; None: as many as `target` has sequences for.
    """

    tokens: list[int]
    target: KVSequence
    drafting: Drafting
    pipeline: Pipeline
    rule: Rule
    rng: np.random.Generator
    end: int
    logprobs: int | None = None
    paths: int | None = None

    @property
    def goes_on(self) -> bool:
        """Is there room for another token?"""
        return len(self.tokens) < self.end

    @property
    def room(self) -> int:
        """Nodes that may be drafted in the next cycle."""
        return min(self.end - len(self.tokens) - 1, self.target.room - 1)


def cycles(text: Text) -> Iterator[Cycle]:
    """Continue `text`, a cycle at a time, until it has come to its end."""
    while text.goes_on:
        yield from cycle([text])


Share: TypeAlias = Callable[[Sequence[Text], Sequence[Proposal]], None]
"""Cuts the trees of all texts to the nodes that are worth verifying."""


def apart(texts: Sequence[Text], proposals: Sequence[Proposal]) -> None:
    """Each text has what its own policy takes to be worth it."""
    for text, proposal in zip(texts, proposals, strict=True):
        text.drafting.choose(proposal)


def cycle(texts: Sequence[Text], share: Share = apart) -> list[Cycle]:
    """Continue each of `texts` by one cycle: one pass of the target, all of one context, for all.

    Where there is nothing to draft from, or it would not pay, a cycle is a plain step.
    """
    drafts = [*map(propose, texts)]
    share(texts, [draft.proposal for draft in drafts])
    passed = score(texts, drafts)
    verified = [*map(verify, texts, drafts, passed)]
    return [*map(commit, texts, drafts, passed, verified)]


@dataclass(slots=True)
class Draft:
    """What is proposed to follow a text, and the seconds that it took."""

    proposal: Proposal
    seconds: float

    @property
    def tree(self) -> TokenTree:
        return self.proposal.tree


@dataclass(slots=True)
class Passed:
    """A text's part in a pass: the logits after its last token and each node, and its time."""

    logits: Rows
    seconds: float


@dataclass(slots=True)
class Verified:
    """What stays of a draft, the chances that it had, the rows looked at, and its time."""

    verdict: Verdict
    overlaps: list[float]
    rows: int
    seconds: float


def propose(text: Text) -> Draft:
    """What may follow `text`: a chain that was drawn, or nodes of which a tree is cut."""
    start = perf_counter()
    paths = text.target.paths if text.paths is None else text.paths
    proposal = text.drafting.find(text.tokens, text.room, paths, text.pipeline, text.rng)
    return Draft(proposal, perf_counter() - start)


def score(texts: Sequence[Text], drafts: Sequence[Draft]) -> list[Passed]:
    """The target's logits after each text's last token and each node of its draft, in one pass."""
    start = perf_counter()
    trees = [
        (text.target, text.tokens[-1], draft.tree.tokens, draft.tree.parents)
        for text, draft in zip(texts, drafts, strict=True)
    ]
    logits = score_trees(trees)
    seconds = (perf_counter() - start) / sum(map(len, logits))
    return [Passed(rows, len(rows) * seconds) for rows in logits]


def verify(text: Text, draft: Draft, passed: Passed) -> Verified:
    """How much of `draft` stays, and the token that follows it."""
    start = perf_counter()
    tree, rule = draft.tree, text.rule
    p = _Targets(passed.logits, text.pipeline.recent(text.tokens), tree, text.pipeline)
    greedy = text.pipeline.params.greedy
    verdict = verify_greedy(tree, p.argmax) if greedy else rule.verify(tree, p, text.rng)
    overlaps = _overlaps(tree, p, verdict, rule)
    return Verified(verdict, overlaps, p.rows or len(verdict.path) + 1, perf_counter() - start)


def commit(text: Text, draft: Draft, passed: Passed, verified: Verified) -> Cycle:
    """Add to `text` what stays; the caches forget the rest, and sources and policy learn of it."""
    start = perf_counter()
    tree, verdict, target = draft.tree, verified.verdict, text.target
    context, fed = len(text.tokens), [text.tokens[-1], *tree.tokens]
    tokens = [*(tree.tokens[node] for node in verdict.path), verdict.token]
    text.tokens += tokens  # the cache holds all of it but the last token
    target.keep(verdict.path)
    kept = perf_counter()
    features = target.hidden(verdict.path) if text.drafting.by_features else None
    learnt = Scored(fed, passed.logits, features)
    text.drafting.settle(draft.proposal, verdict, tokens, learnt, passed.seconds, context)
    settled = perf_counter() - kept
    seconds = Seconds(
        draft=draft.seconds + settled,
        target=passed.seconds,
        sample=verified.seconds + kept - start,
    )
    return Cycle(
        tokens,
        verdict.accepted,
        len(tree),
        max(tree.depths, default=0),
        context,
        verified.overlaps,
        verified.rows,
        seconds,
        draft.proposal.parts(verdict),
        tree,
        draft.proposal.names,
        verdict.path,
        _logprobs(text, passed, verdict, tokens),
    )


def _logprobs(
    text: Text, passed: Passed, verdict: Verdict, tokens: Sequence[int]
) -> Sequence[Logprobs]:
    if text.logprobs is None:
        return ()
    rows = [0, *(node + 1 for node in verdict.path)]  # each token is drawn from one of these
    return [
        logprobs(passed.logits[row], token, text.logprobs)
        for row, token in zip(rows, tokens, strict=True)
    ]


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
