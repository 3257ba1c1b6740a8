"""One tree a cycle, from all who can propose: grown best first, by the calibrated chances.

The nodes of such a tree are chosen, not drawn, so that it is exact whatever it looks like. What
takes no passes is asked for what may follow each node that is likely enough to be worth its place;
what takes passes is asked for the likeliest nodes, a layer a pass, as long as that pays. Expanding
the likeliest, then ranking all: Li et al. 2024, "EAGLE-2: Faster Inference of Language Models with
Dynamic Draft Trees". There passes and widths are fixed; here measured costs decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

from spec_cpu.cycle.calibration import Calibration
from spec_cpu.draft.base import Follows, Lookup, Path
from spec_cpu.draft.tree import ROOT, Paths, TokenTree


class Growth:
    """All nodes found in a cycle, by the order in which they were found.

    Attributes:
        chances: that a node is reached and accepted.
        most: nodes of the tree.
    """

    def __init__(
        self,
        lookups: Sequence[Lookup],
        calibration: Calibration,
        most: int,
        paths: int,
        *,
        floor: float,
        ends: AbstractSet[int],
    ) -> None:
        """A tree of up to `most` nodes on up to `paths` paths.

        Args:
            lookups: are asked for what follows each node, while `fill` runs.
            floor: the chance below which no node is worth its place.
            ends: tokens that end the text: nothing follows them.
        """
        self.chances: list[float] = []
        self._lookups = lookups
        self._calibration = calibration
        self.most, self._most_paths = most, paths
        self._floor = floor
        self._ends = ends
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._own: list[float] = []  # chances where the parent is accepted
        self._said: list[list[tuple[str, float]]] = []
        self._paths: dict[int, Path] = {ROOT: ()}
        self._children: dict[int, dict[int, int]] = {}  # of what was asked for: nodes by token
        self._waiting: list[tuple[float, int]] = [(-1.0, ROOT)]  # (-chance, node), not asked for
        self._best: Sequence[int] | None = None  # unless something was added since it was asked for

    def fill(self) -> None:
        """Ask the lookups for all nodes that are likely enough, the likeliest first."""
        while self._waiting and len(self._children) <= self.most:
            chance, node = heappop(self._waiting)
            if -chance < self._floor:
                return
            if node not in self._children:
                path = self._paths[node]
                self.add(node, [(one.name, one.follows(path)) for one in self._lookups])

    def ask(self, lookup: Lookup) -> None:
        """Ask `lookup`, which knows more now, for all nodes below the root that were asked for."""
        for node in [*self._children]:
            if node != ROOT:
                self.add(node, [(lookup.name, lookup.follows(self._paths[node]))])

    def add(self, parent: int, found: Iterable[tuple[str, Follows]]) -> None:
        """`parent` may be followed by what these sources found."""
        self._best = None
        children = self._children.setdefault(parent, {})
        for name, follows in found:
            for token, sure in follows:
                node = children.get(token)
                if node is None:
                    children[token] = len(self._tokens)
                    self._tokens.append(token)
                    self._parents.append(parent)
                    self._said.append([(name, sure)])
                    self._own.append(0.0)
                    self.chances.append(0.0)
                else:
                    self._said[node].append((name, sure))
        if children:
            self._weigh(parent, children)

    def _weigh(self, parent: int, children: dict[int, int]) -> None:
        """Work out the chances of the children of a node."""
        reach = self.reach(parent)
        chances = [self._calibration.chance(self._said[node]) for node in children.values()]
        total = sum(chances)
        if total > 1.0:
            reach /= total
        for (token, node), own in zip(children.items(), chances, strict=True):
            chance = reach * own
            if chance == self.chances[node]:
                continue
            self._own[node] = own / max(1.0, total)
            self.chances[node] = chance
            if node in self._children:
                self._weigh(node, self._children[node])
            elif chance >= self._floor and token not in self._ends:
                self._paths[node] = (*self._paths[parent], token)
                heappush(self._waiting, (-chance, node))

    def foreseen(self, node: int) -> float:
        """The chance of the best of what was found to follow `node`, where that is accepted."""
        children = self._children.get(node, {}).values()
        return max((self._own[child] for child in children), default=0.0)

    def best(self) -> Sequence[int]:
        """The nodes of the best tree, best first."""
        if self._best is None:
            self._best = self._ranked()
        return self._best

    def _ranked(self) -> list[int]:
        likely = [node for node, chance in enumerate(self.chances) if chance >= self._floor]
        if not likely:
            return []
        room, chosen = Paths(self._most_paths), {ROOT}
        found: list[int] = []
        for node in sorted(likely, key=lambda node: -self.chances[node]):
            parent = self._parents[node]
            if parent in chosen and room.extend(parent):
                chosen.add(node)
                found.append(node)
                if len(found) == self.most:
                    break
        return found

    def tree(self, nodes: Sequence[int]) -> TokenTree:
        """These nodes, the best ones, as a tree."""
        places = {ROOT: ROOT, **{node: i for i, node in enumerate(nodes)}}
        return TokenTree(
            [self._tokens[node] for node in nodes],
            None,
            [self._own[node] for node in nodes],
            [places[self._parents[node]] for node in nodes],
        )

    def reach(self, node: int) -> float:
        """The chance that `node` is accepted, or is the text itself."""
        return 1.0 if node == ROOT else self.chances[node]

    def path(self, node: int) -> Path:
        """The tokens from the text to `node`."""
        return self._paths[node]

    def parent(self, node: int) -> int:
        """What `node` follows."""
        return self._parents[node]

    def token(self, node: int) -> int:
        """What stands there."""
        return self._tokens[node]

    def names(self, node: int) -> list[str]:
        """Who proposed `node`."""
        return [name for name, _ in self._said[node]]

    def learn(self, tokens: Sequence[int]) -> None:
        """`tokens` followed the text: so far as they were foreseen, learn who was right."""
        node: int | None = ROOT
        for token in tokens:
            children = self._children.get(node) if node is not None else None
            if children is None:
                return
            for other, child in children.items():
                self._calibration.learn(self._said[child], other == token)
            node = children.get(token)
