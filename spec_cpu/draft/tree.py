"""What a source proposes."""

from __future__ import annotations

from dataclasses import dataclass, field

from spec_cpu.sampling.pipeline import Distribution

ROOT = -1
"""The node that a tree grows from: the last token of the text."""


class Paths:
    """Counts the paths of a tree as nodes are added to it: only a second child begins another."""

    def __init__(self, most: int) -> None:
        """Of a root alone, which is one path of at most `most`."""
        self._most = most
        self._paths = 1
        self._with_child: set[int] = set()

    def copy(self) -> Paths:
        """The same, to go on from in another way."""
        paths = Paths(self._most)
        paths._paths, paths._with_child = self._paths, set(self._with_child)
        return paths

    def extend(self, parent: int) -> bool:
        """Add a child of `parent`, unless that makes too many paths."""
        branches = parent in self._with_child
        if self._paths + branches > self._most:
            return False
        self._paths += branches
        self._with_child.add(parent)
        return True


@dataclass(slots=True)
class TokenTree:
    """Proposed tokens, each of which follows its parent. A chain is a tree without branches.

    A node comes after its parent, and the best first, so that the first n nodes are a tree, too.

    Attributes:
        tokens: the proposed ids; none means a plain step.
        q: the distribution each token of a chain was drawn from; None if they were not drawn but
            chosen (argmax, or looked up): a point mass on each. Only a chain is drawn.
        confidence: how sure the source is of each, given its parent; empty if it cannot say.
        parents: the index of each one's parent, `ROOT` for those that follow the text. Left out,
            it is a chain.
    """

    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] | None = None
    confidence: list[float] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    is_chain: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        if not self.parents:
            self.parents = list(range(ROOT, len(self.tokens) - 1))
        if len(self.parents) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} tokens, but {len(self.parents)} parents")
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(f"node {node} cannot follow node {parent}")
            self.is_chain &= parent == node - 1
        if self.q is not None and not self.is_chain:
            raise ValueError("a tree with branches has no q: its tokens are chosen")

    def append(
        self, token: int, q: Distribution | None, confidence: float, parent: int | None = None
    ) -> None:
        """Add a token after `parent`, by default the last one; `q` only if tokens are drawn."""
        last = len(self.tokens) - 1
        self.is_chain &= parent is None or parent == last
        self.parents.append(last if parent is None else parent)
        self.tokens.append(token)
        self.confidence.append(confidence)
        if self.q is not None and q is not None:
            self.q.append(q)

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self, node: int) -> list[int]:
        """The nodes that follow `node`, in order."""
        if self.is_chain:
            return [node + 1] if node + 1 < len(self) else []
        return [i for i in range(node + 1, len(self)) if self.parents[i] == node]

    def child(self, node: int, token: int) -> int | None:
        """The first node after `node` that is `token`."""
        return next((i for i in self.children(node) if self.tokens[i] == token), None)

    def path(self, node: int) -> list[int]:
        """The nodes from the top to `node`, itself included; empty for the root."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    @property
    def depths(self) -> list[int]:
        """How far each node is from the root: 1 for what follows the text."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths
