"""Who drafts: of several drafters, each cycle, the one that promises most for its time.

A drafter that looks things up proposes first, for that is all but free, and promises by its tree. A
draft model promises by its record and does nothing until it is preferred: where it is not, it
catches up when it drafts again. All are told how every cycle ended.

The choice follows from the text so far, from trees of chosen tokens and from records, never from a
token that was drawn, so that the tokens a model draws remain draws from its q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from time import perf_counter

import numpy as np

from spec_cpu.cycle.schedule_base import Outcome, Schedule
from spec_cpu.cycle.verify import Verdict
from spec_cpu.draft.base import Drafter
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.sampling.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Drafting:
    """A drafter and the schedule that says how much it drafts, in one text."""

    drafter: Drafter
    schedule: Schedule


@dataclass(slots=True)
class _Offer:
    """What a drafter has for a cycle: at most `k` tokens, or `nodes` of `tree` once it proposed."""

    drafting: Drafting
    k: int = 0
    nodes: int = 0
    tree: TokenTree | None = None
    seconds: float = 0.0

    def plan(self, room: int) -> None:
        """Ask the schedule how many tokens to draft."""
        start = perf_counter()
        self.k = self.drafting.schedule.next_k(room)
        self.seconds += perf_counter() - start

    def propose(self, text: Sequence[int], pipeline: Pipeline, rng: np.random.Generator) -> None:
        """Draft them; the schedule says how many are worth scoring."""
        start = perf_counter()
        drafter, schedule = self.drafting.drafter, self.drafting.schedule
        self.tree = tree = drafter.propose(text, self.k, pipeline, rng, schedule)
        self.nodes = schedule.worth(tree)
        self.seconds += perf_counter() - start

    @property
    def willing(self) -> bool:
        return bool(self.nodes if self.drafting.drafter.free else self.k)

    @property
    def promise(self) -> float:
        return self.drafting.schedule.promise


@dataclass(frozen=True, slots=True)
class Proposal:
    """A cycle's draft, and what everyone did for it.

    Attributes:
        tree: of the drafter that was preferred; empty for a plain step.
        nodes: how many of its first nodes the target should score.
    """

    tree: TokenTree
    nodes: int
    _offers: list[_Offer]
    _best: _Offer | None

    @property
    def name(self) -> str | None:
        """The drafter's; None if nobody drafted."""
        return self._best.drafting.drafter.name if self._best else None

    def settle(
        self,
        scored: TokenTree,
        verdict: Verdict,
        tokens: Sequence[int],
        seconds: float,
        depth: int,
    ) -> None:
        """Tell every schedule how the cycle ended.

        Args:
            scored: what the target scored of `tree`.
            tokens: what was added to the text.
            seconds: what the target's pass took.
            depth: tokens of context before it.
        """
        for offer in self._offers:
            own = offer is self._best or not scored.tokens
            offer.drafting.schedule.observe(
                Outcome(
                    len(scored),
                    verdict.accepted,
                    offer.seconds,
                    seconds,
                    _tried(offer.tree, verdict if offer is self._best else None, tokens),
                    own,
                    depth,
                )
            )


def propose(
    drafting: Sequence[Drafting],
    text: Sequence[int],
    room: int,
    pipeline: Pipeline,
    rng: np.random.Generator,
) -> Proposal:
    """The draft of whoever promises most, of at most `room` tokens; empty if nobody would draft."""
    offers = [_Offer(one) for one in drafting]
    for offer in offers:
        offer.plan(room)
        if offer.k > 0 and offer.drafting.drafter.free:
            offer.propose(text, pipeline, rng)
    willing = [offer for offer in offers if offer.willing]
    if not willing:
        return Proposal(TokenTree(), 0, offers, None)
    by_promise = attrgetter("promise")
    best = max(willing, key=by_promise)
    if not best.drafting.drafter.free:
        best.propose(text, pipeline, rng)
        if not best.nodes:  # it declined, before it drew any token
            best = max((one for one in willing if one.nodes), key=by_promise, default=best)
    return Proposal(best.tree or TokenTree(), best.nodes, offers, best)


def _tried(
    tree: TokenTree | None, verdict: Verdict | None, tokens: Sequence[int]
) -> list[tuple[float, bool]]:
    """How sure the drafter was of each node that was reached, and whether it stayed.

    Of chosen tokens even those that were not scored: the text says what would have become of them.

    Args:
        verdict: None if nothing of `tree` was scored.
    """
    if not tree or not tree.confidence:
        return []
    if tree.q is None:
        follows: Sequence[int] = tree.descend(tokens)
    elif verdict is not None:
        follows = verdict.path
    else:
        return []
    stayed = set(follows)
    return [
        (tree.confidence[child], child in stayed)
        # As far as the text goes: what would have followed its last token is not known yet.
        for node, _ in zip((ROOT, *follows), tokens, strict=False)
        for child in tree.children(node)
    ]
