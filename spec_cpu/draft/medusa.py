"""Drafts from Medusa heads: trees of what each of them holds for likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from spec_cpu import defaults
from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.base import Shape
from spec_cpu.draft.medusa_passes import MedusaPasses
from spec_cpu.draft.tree import ROOT, Paths, TokenTree
from spec_cpu.errors import LogitsError, ModelError
from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.pipeline import Pipeline


class Place(NamedTuple):
    """A node of a tree before it is known which token stands there.

    Attributes:
        parent: the index of its parent, or `ROOT`.
        head, rank: it is that head's candidate of that rank, both from 0.
        chance: that it is right if its parent is.
    """

    parent: int
    head: int
    rank: int
    chance: float


class MedusaDrafter:
    """Heads that all look at the last feature known, f_i: head m foretells token i + 1 + m.

    Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
    Heads". What a head says does not depend on what the one before it says: the tree pairs every
    candidate of a head with those of the next. Its shape is the best by the accuracies that were
    measured for each head and rank, and always the same; which tokens stand there is new in each
    cycle. They are chosen, not drawn, so that the text is exact.

    One pass gives all of the tree: the schedule is asked once whether it is worth its time.
    """

    name = "medusa"
    free = False
    shape: Shape = "tree"
    by_features = True
    window: int | None = 0

    def __init__(
        self,
        head: MedusaHead,
        model: Model,
        context: Context,
        *,
        paths: int,
        ends: AbstractSet[int],
    ) -> None:
        """Draft with `head`, run by `model` through `context`, both closed by `close`.

        Args:
            context: of one row a head at least.
            paths: from the root to a leaf, at most.
            ends: the target's tokens that end a text.
        """
        self.model = model
        self._context = context
        self._ids = head.label.tokens.astype(np.intp)
        self._passes = MedusaPasses(head, context)
        self._places = best_tree(head.accuracy, nodes=defaults.MAX_DRAFT_TOKENS, paths=paths)
        self._ranks = head.accuracy.shape[1]
        self._ends = ends
        self._feature: Rows | None = None  # that the last token of the text was drawn from

    @property
    def sequence(self) -> MedusaPasses:
        """Its passes, for measuring what they cost."""
        return self._passes

    def lacks(self, prompt: Sequence[int]) -> int:
        """The last row, if there is one."""
        return min(1, len(prompt) - 1)

    def begin(
        self,
        prompt: Sequence[int],
        progress: PrefillProgress | None = None,
        *,
        features: Rows | None = None,
    ) -> None:
        """Only the last feature counts."""
        self._keep(features)

    def propose(
        self,
        history: Sequence[int],
        k: int,
        pipeline: Pipeline,
        rng: np.random.Generator,
        schedule: Schedule,
    ) -> TokenTree:
        """The best tree of at most `k` nodes; nothing follows a token that ends the text.

        None where no feature is known yet, or every token that it has is forbidden.

        Raises:
            ModelError: the file is damaged.
        """
        if self._feature is None or not pipeline.allows_any(self._ids):
            return TokenTree()
        if not schedule.worth_at_once(self._expected(k, schedule)):
            return TokenTree()
        rows = self._passes.run(self._feature)
        recent = pipeline.recent(history)
        try:
            best = [pipeline.ranked(row, recent, self._ranks, self._ids) for row in rows]
        except LogitsError as error:
            raise ModelError(f"{self.model.path.name}: {error}") from None
        return self._filled(best, k)

    def commit(self, tokens: Sequence[int], features: Rows | None = None) -> None:
        """The feature that the last of `tokens` was drawn from is the one to go on from."""
        self._keep(features)

    def close(self) -> None:
        self._context.close()
        self.model.close()

    def _keep(self, features: Rows | None) -> None:
        self._feature = None if features is None or not len(features) else features[-1].copy()

    def _expected(self, k: int, schedule: Schedule) -> list[float]:
        """The chance of each of the first `k` places that it is reached and accepted."""
        reach: list[float] = []
        for place in self._places[:k]:
            before = 1.0 if place.parent == ROOT else reach[place.parent]
            reach.append(before * schedule.acceptance(place.chance))
        return reach

    def _filled(self, best: Sequence[Sequence[int]], k: int) -> TokenTree:
        """The tree's first `k` nodes, with these candidates of each head."""
        tree = TokenTree()
        nodes = {ROOT: ROOT}  # by place; where a token ends the text there is nothing below it
        for i, place in enumerate(self._places):
            if len(tree) == k:
                break
            candidates = best[place.head]
            if place.parent not in nodes or place.rank >= len(candidates):
                continue
            token = candidates[place.rank]
            if token not in self._ends:
                nodes[i] = len(tree)
            tree.append(token, None, place.chance, nodes[place.parent])
        return tree


def best_tree(accuracy: Rows, *, nodes: int, paths: int) -> list[Place]:
    """The `nodes` places most likely to be right, likeliest first, on at most so many paths.

    Args:
        accuracy: (K, R): see `MedusaWeights`.
    """
    places: list[Place] = []
    room = Paths(paths)
    waiting = _children(accuracy, ROOT, 0, 1.0)
    while waiting and len(places) < nodes:
        reach, place = heappop(waiting)
        if not room.extend(place.parent):
            continue
        for child in _children(accuracy, len(places), place.head + 1, -reach):
            heappush(waiting, child)
        places.append(place)
    return places


def _children(accuracy: Rows, parent: int, head: int, reach: float) -> list[tuple[float, Place]]:
    """What may follow place `parent`, which is right with the chance `reach`: a heap."""
    if head == len(accuracy):
        return []
    chances = enumerate(accuracy[head].tolist())
    found = [
        (-reach * chance, Place(parent, head, rank, chance))
        for rank, chance in chances
        if chance > 0.0
    ]
    return sorted(found)
