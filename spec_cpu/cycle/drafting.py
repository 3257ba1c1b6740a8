"""What is drafted in a cycle, and what the sources and the policy learn from it."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, TypeGuard

import numpy as np

from spec_cpu.cycle.calibration import Calibration, Open
from spec_cpu.cycle.growth import Growth
from spec_cpu.cycle.policy import Outcome
from spec_cpu.cycle.verify import Verdict
from spec_cpu.draft.base import WIDTH, Drawing, Lookup, Passes, Scored, Source
from spec_cpu.draft.reader import Reader
from spec_cpu.draft.tree import ROOT, Paths, TokenTree
from spec_cpu.errors import LogitsError, ModelError
from spec_cpu.sampling.pipeline import Pipeline

_FED = 2  # nodes fed, at most, for each one wanted: with 1 a chain may be better than the tree


class Decides(Protocol):
    """What decides how much is drafted. See `Policy`, `Pinned`.

    `begin` once a text; once a cycle the questions, then `observe`.

    Attributes:
        most: nodes that may be verified in this cycle.
        reason: why nothing is drafted, in a person's words; None while something is.
        hopeless: will it never draft, whatever is accepted?
        floor: the chance below which no node is worth its place in a pass.
        rests: is it known that passes of a draft do not pay where nothing else was found?
    """

    calibration: Calibration
    floor: float

    @property
    def hopeless(self) -> bool: ...

    @property
    def most(self) -> int: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def rests(self) -> bool: ...

    def begin(self) -> None: ...

    def verified(self, chances: Sequence[float]) -> int: ...

    def worth_pass(self, chances: Sequence[float], layer: Sequence[Open], layers: int) -> int: ...

    def draws(self, chances: Sequence[float], room: int) -> int: ...

    def worth_another(self, drafted: int, reach: float, sure: float | None) -> bool: ...

    def observe(self, outcome: Outcome) -> None: ...


@dataclass(slots=True)
class Part:
    """What a source had in a cycle: nodes that the target scored, and how many of them stayed.

    Attributes:
        tried: positions reached at which it had proposed something.
    """

    drafted: int = 0
    accepted: int = 0
    tried: int = 0


@dataclass(slots=True)
class Proposal:
    """A cycle's draft: the tree to score, and who proposed each of its nodes.

    Attributes:
        growth: what was found. The tree is cut from its `best` nodes, best first; where it was
            drawn there are none.
        passed: the source that took passes for it.
    """

    tree: TokenTree = field(default_factory=TokenTree)
    names: list[list[str]] = field(default_factory=list)
    seconds: float = 0.0
    growth: Growth | None = None
    best: Sequence[int] = ()
    passed: str | None = None

    @property
    def chances(self) -> list[float]:
        """Of the best nodes that were found, best first."""
        return [] if self.growth is None else [self.growth.chances[node] for node in self.best]

    def cut(self, n: int) -> None:
        """Let the first `n` of the best nodes be the tree, unless it was drawn."""
        if self.growth is not None and n:
            self.tree = self.growth.tree(self.best[:n])
            self.names = [self.growth.names(node) for node in self.best[:n]]

    def parts(self, verdict: Verdict) -> dict[str, Part]:
        """What each source had in it."""
        if not self.names and self.passed is None:
            return {}
        parts: dict[str, Part] = {} if self.passed is None else {self.passed: Part()}
        stayed = set(verdict.path)
        reached: dict[str, set[int]] = {}
        for node, (parent, names) in enumerate(zip(self.tree.parents, self.names, strict=True)):
            for name in names:
                part = parts.setdefault(name, Part())
                part.drafted += 1
                part.accepted += node in stayed
                if parent == ROOT or parent in stayed:
                    reached.setdefault(name, set()).add(parent)
        for name, positions in reached.items():
            parts[name].tried = len(positions)
        return parts


class Drafting:
    """The sources of a text, and the policy that decides how much they draft."""

    def __init__(
        self,
        sources: Sequence[Source],
        policy: Decides,
        *,
        ends: AbstractSet[int] = frozenset(),
        draws: bool | None = None,
    ) -> None:
        """With at most one source that takes passes.

        Args:
            ends: tokens that end the text.
            draws: are tokens drawn from a source's q where the text is sampled, if it has one?
                Default: if it makes chains.
        """
        self.sources = sources
        self.policy = policy
        self.by_features = any(source.by_features for source in sources)
        self._lookups = [source for source in sources if _looks_up(source)]
        self._passes = next((source for source in sources if _takes_passes(source)), None)
        self._ends = ends
        self._draws = draws

    def find(
        self,
        text: Sequence[int],
        room: int,
        paths: int,
        pipeline: Pipeline,
        rng: np.random.Generator,
    ) -> Proposal:
        """What may follow `text`: a chain that was drawn, or nodes of which a tree is to be cut.

        Args:
            room: nodes at most. `paths`: from the root to a leaf, at most.

        Raises:
            ModelError: a draft is damaged.
        """
        start = perf_counter()
        policy, source = self.policy, self._passes
        most = min(room, policy.most) if self.sources else 0
        if most <= 0:
            return Proposal()
        growth = Growth(
            self._lookups, policy.calibration, most, paths, floor=policy.floor, ends=self._ends
        )
        growth.fill()
        proposal, passed = None, False
        if source is not None and not (policy.rests and not growth.chances):
            reader = Reader(pipeline, pipeline.recent(text))
            able = source.able(reader, _FED * most)
            try:
                if able and not pipeline.params.greedy and _draws(source, self._draws):
                    proposal = self._drawn(source, growth, min(room, able), reader, rng)
                elif able:
                    passed = self._expanded(source, growth, able, reader)
            except LogitsError as error:
                name = source.model.path.name if source.model else "the draft"
                raise ModelError(f"{name}: {error}") from None
        if proposal is None:
            proposal = Proposal(
                best=growth.best(), passed=source.name if passed and source else None
            )
        proposal.growth, proposal.seconds = growth, perf_counter() - start
        return proposal

    def choose(self, proposal: Proposal) -> None:
        """Let the tree be what is worth verifying."""
        if proposal.best:
            proposal.cut(self.policy.verified(proposal.chances))

    def _expanded(self, source: Passes, growth: Growth, able: int, reader: Reader) -> bool:
        """Add to the tree what passes of `source` find, as long as they pay; were any made?

        Args:
            able: nodes that may be fed beside the text itself.
        """
        calibration = self.policy.calibration
        fed: set[int] = set()
        paths = Paths(source.paths)
        breadth = 1 if source.shape == "chain" else None
        while True:
            best = growth.best()
            layer = self._open(growth, best, fed, paths.copy())[: able + 1 - len(fed)]
            chances = [growth.chances[node] for node in best]
            n = self.policy.worth_pass(chances, [one for one, _ in layer], source.layers)
            if not n:
                return bool(fed)
            nodes = [node for _, node in layer[:n]]
            found = source.expand([growth.path(node) for node in nodes], reader)
            for node, follows in zip(nodes, found, strict=True):
                fed.add(node)
                if node != ROOT:
                    paths.extend(growth.parent(node))
                growth.add(node, [(source.name, follows[:breadth])])
                likeliest = [(source.name, follows[0][1])] if follows else []
                chance = calibration.chance(likeliest) if likeliest else 0.0
                calibration.passes.count(growth.reach(node), chance)
            if _looks_up(source):  # this pass has told it of all nodes
                growth.ask(source)
                growth.fill()
                return True
            growth.fill()

    def _open(
        self, growth: Growth, best: Sequence[int], fed: AbstractSet[int], paths: Paths
    ) -> list[tuple[Open, int]]:
        """What may be fed in the next pass, the best first; in a cycle first the text itself."""
        if not fed:
            return [((1.0, growth.foreseen(ROOT)), ROOT)]
        # What follows the last node of a full tree is no likelier, so it has no place there.
        extended = best[:-1] if len(best) == growth.most else best
        layer = [
            ((growth.chances[node], growth.foreseen(node)), node)
            for node in extended
            if node not in fed
            and growth.parent(node) in fed
            and growth.token(node) not in self._ends
        ]
        layer.sort(key=lambda one: -one[0][0] * (1.0 - one[0][1]))
        return [one for one in layer if paths.extend(growth.parent(one[1]))][:WIDTH]

    def _drawn(
        self,
        source: Drawing,
        growth: Growth,
        room: int,
        reader: Reader,
        rng: np.random.Generator,
    ) -> Proposal | None:
        """A chain drawn from the source's own q, cut after an end; None if the tree is better.

        What decides that are the tree and the record, before anything is drawn.
        """
        policy = self.policy
        k = policy.draws([growth.chances[node] for node in growth.best()], room)
        if not k:
            return None
        tree = TokenTree(q=[])
        path: tuple[int, ...] = ()
        reach = 1.0
        while len(tree) < k and policy.worth_another(len(tree), reach, None):
            q = reader.pipeline.distribution(source.logits(path), reader.history(path), source.ids)
            sure = float(q.p.max())
            chance = policy.calibration.chance([_drawn(len(tree), sure)])
            # Asked before the token is drawn: see `Policy.worth_another`.
            if tree.tokens and not policy.worth_another(len(tree), reach, chance):
                break
            token = q.sample(rng)
            tree.append(token, q, sure)
            path = (*path, token)
            reach *= chance
            if token in self._ends:
                break
        return Proposal(tree, [[source.name]] * len(tree), passed=source.name)

    def settle(
        self,
        proposal: Proposal,
        verdict: Verdict,
        tokens: Sequence[int],
        scored: Scored,
        seconds: float,
        depth: int,
    ) -> None:
        """Tell the sources and the policy how the cycle ended.

        Args:
            tokens: what was added to the text.
            seconds: what the target's pass took.
            depth: tokens of context before it.
        """
        start = perf_counter()
        drawn = proposal.tree.q is not None
        if proposal.growth is not None and proposal.growth.chances:
            proposal.growth.learn(tokens)
        if drawn:
            for node in range(min(len(proposal.tree), verdict.accepted + 1)):
                said = [_drawn(node, proposal.tree.confidence[node])]
                self.policy.calibration.learn(said, node < verdict.accepted)
        for source in self.sources:
            source.commit(tokens, scored)
        self.policy.observe(
            Outcome(
                len(proposal.tree),
                verdict.accepted,
                len(tokens),
                proposal.seconds + perf_counter() - start,
                seconds,
                depth,
                drawn,
            )
        )


def _drawn(depth: int, sure: float) -> tuple[str, float]:
    """Who says so: a cycle begins where it is hard, what follows an accepted token is likelier."""
    return ("drawn on" if depth else "drawn", sure)


def _looks_up(source: Source) -> TypeGuard[Lookup]:
    return hasattr(source, "follows")


def _takes_passes(source: Source) -> TypeGuard[Passes]:
    return hasattr(source, "expand")


def _draws(source: Passes, asked: bool | None) -> TypeGuard[Drawing]:
    draws = source.shape == "chain" if asked is None else asked
    return draws and hasattr(source, "logits")
