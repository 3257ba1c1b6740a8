"""A tree behind a text in the cache of keys and values: which sequence holds what of it."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context

Places = tuple[list[int], list[tuple[int, ...]]]
"""Of nodes to be fed in one pass: their positions, and the sequences that each belongs to."""


class Branches:
    """Sequences for the paths of a tree, which may be fed in one pass or grow pass by pass.

    Every path from the root to a leaf is a sequence of llama.cpp's, so that a node attends to its
    ancestors and to the text, and to nothing else. A node's first child goes on in the sequence of
    its parent. Every other child begins a branch, which has to hold the text and the ancestors as
    well: it shares their cells (no copy), and is brought up to them only when a tree needs it.

    This runs no model: whoever feeds the nodes, as tokens or as vectors, feeds them where `place`
    says, and may then `keep` a path. Node -1 is the root.
    """

    def __init__(self, context: Context, seq_id: int, others: Sequence[int]) -> None:
        """Use sequence `seq_id` of `context`, which holds the text, and `others` for branches."""
        self._context = context
        self._seq_id = seq_id
        self._held = dict.fromkeys(others, 0)  # positions that each may hold
        self.root(0)

    @property
    def paths(self) -> int:
        """Paths that a tree may have."""
        return 1 + len(self._held)

    def root(self, position: int, fed: int = 0) -> None:
        """Begin a tree at `position`.

        Args:
            fed: nodes that are in the cache already: the root and a chain after it. With
                0 the root itself is yet to be fed, by the first `place`.
        """
        n = max(1, fed)
        self._begin = position
        self._fed = fed
        # Of the root and each node: its parent, depth, the sequence in which its path goes on.
        self._parents = list(range(-1, n - 1))
        self._depths = list(range(n))
        self._lines = [self._seq_id] * n
        self._has_child = [*[True] * (n - 1), False]
        self._used: list[int] = []  # sequences of branches

    def place(self, parents: Sequence[int]) -> Places:
        """Add nodes, each after its parent: where to feed them, in one pass.

        Returns:
            Places for these nodes, and before them for the root if that is yet to be fed.

        Raises:
            ContextError: more paths than there are sequences. Nothing is changed.
        """
        self._check_paths(parents)
        first = self._fed
        ids = [[self._seq_id] for _ in range(first, len(self._lines))]
        for parent in parents:
            above = parent + 1
            line = self._lines[above]
            if self._has_child[above]:
                line = self._branch(above, first, ids)
            self._has_child[above] = True
            self._parents.append(above)
            self._depths.append(self._depths[above] + 1)
            self._lines.append(line)
            self._has_child.append(False)
            ids.append([line])
            if line != self._seq_id:
                self._held[line] = self._begin + self._depths[-1] + 1
        self._fed = len(self._lines)
        return [self._begin + depth for depth in self._depths[first:]], [*map(tuple, ids)]

    def _check_paths(self, parents: Sequence[int]) -> None:
        with_child = {i for i, has in enumerate(self._has_child) if has}
        paths = 1 + len(self._used)
        for parent in parents:
            paths += parent + 1 in with_child
            with_child.add(parent + 1)
        if paths > self.paths:
            raise ContextError(f"a tree of {paths} paths, but there are {self.paths}")

    def _branch(self, above: int, first: int, ids: list[list[int]]) -> int:
        """A sequence for another child of `above`, which holds all that is before that child.

        Ancestors from `first` on are about to be fed: they join it by `ids`. The others are in the
        cache.
        """
        branch = next(other for other in self._held if other not in self._used)
        self._used.append(branch)
        if self._held[branch] < self._begin:
            self._context.copy(self._seq_id, branch, self._held[branch], self._begin)
        while above >= first:
            ids[above - first].append(branch)
            above = self._parents[above]
        if above >= 0:
            end = self._begin + self._depths[above] + 1
            self._context.copy(self._lines[above], branch, self._begin, end)
        return branch

    def keep(self, path: Sequence[int]) -> None:
        """Keep the root and the nodes of `path`, from the top down, and nothing else."""
        begin = self._begin + 1
        end = begin + len(path)
        line = self._lines[path[-1] + 1] if path else self._seq_id
        first = all(node == i for i, node in enumerate(path))  # of all that were fed
        parks = self._context.parks
        moved = None if first or parks else self._context.save(line, begin, end)
        if self._used or len(path) < len(self._lines) - 1:
            for seq_id in (self._seq_id, *self._used):
                self._cut(seq_id, end if (first or parks) and seq_id == line else begin)
        if moved is not None:
            # Attention adds up in the order of the cells. With the text in its order and no gap in
            # it, which cells of rejected nodes would leave, sums are those of plain decoding.
            self._context.restore(moved, self._seq_id, begin, end)
        elif line != self._seq_id:
            # All of the path is in that sequence: it is renamed by sharing its cells.
            self._context.copy(line, self._seq_id, begin, end)
        self.root(end)

    def forget_from(self, position: int) -> None:
        """Let no branch hold anything from `position` on; the text's own sequence is left alone."""
        for branch, held in self._held.items():
            if held > position:
                self._cut(branch, position)

    def _cut(self, seq_id: int, n: int) -> None:
        self._context.truncate(n, seq_id=seq_id)
        if seq_id != self._seq_id:
            self._held[seq_id] = n
