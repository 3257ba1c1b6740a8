"""One sequence of a context, and which tokens of it are in the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context, Rows

PrefillProgress = Callable[[int, int], None]
"""Told (tokens evaluated, tokens in all) after each batch of a prompt."""


@dataclass(slots=True)
class _Scored:
    """The pass scored last: where it began, and of a tree its tokens and each node's sequences."""

    begin: int = 0
    tree: Sequence[int] = ()
    seq_ids: list[tuple[int, ...]] = field(default_factory=list)


class KVSequence:
    """A sequence whose first `len(tokens)` tokens have their keys and values in the cache.

    `tokens` is what was fed, in order: position i holds token i. Where the model takes embeddings
    a token stands for the row that was fed.

    A tree is scored by giving every path from its root to a leaf a sequence of llama.cpp's, the
    first one this sequence's own. The others (`branches`) have to hold the text as well. They
    share its cells and are brought up to it only when a tree needs them, so that a chain costs
    nothing more.
    """

    rereads = 0  # what was fed stays: see `cost.DraftPasses`

    def __init__(self, context: Context, seq_id: int = 0, branches: Sequence[int] = ()) -> None:
        """Use sequence `seq_id` of `context`, and for trees `branches`, which nobody else uses."""
        self.context = context
        self.tokens: list[int] = []
        self._seq_id = seq_id
        self._branches = dict.fromkeys(branches, 0)  # positions that each may hold
        self._scored = _Scored()

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def paths(self) -> int:
        """Paths that a tree may have."""
        return 1 + len(self._branches)

    @property
    def room(self) -> int:
        """Tokens that one scored pass may have now."""
        return min(self.context.max_outputs, self.context.n_ctx - len(self))

    def score(self, tokens: Sequence[int], embeddings: Rows | None = None) -> Rows:
        """Feed `tokens` in one pass and return the logits after each: (len(tokens), n_vocab).

        The rows are a view that lives until the context's next pass. Errors: `Context.decode`.

        Args:
            embeddings: float32, (len(tokens), n_embd): fed in place of the tokens.
        """
        return self._feed(tokens, None, embeddings)

    def score_tree(self, root: int, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        """Feed `root` and a tree that grows from it in one pass; `keep` says what stays of it.

        Args:
            root: follows what is in the cache.
            tokens, parents: the nodes, each after its parent; -1 for those that follow the root.
                At most `room` with the root, on at most `paths` paths.

        Returns:
            The logits after the root and after each node: (len(tokens) + 1, n_vocab). A view that
            lives until the context's next pass.

        Raises:
            ContextError: more than fits, or as for `Context.decode`. Nothing is changed.
        """
        begin = len(self)
        if all(parent == node - 1 for node, parent in enumerate(parents)):
            rows = self.score([root, *tokens])
            self._scored = _Scored(begin)
            return rows
        seq_ids = self._seq_ids(parents)
        depths = [0]
        for parent in parents:
            depths.append(depths[parent + 1] + 1)
        for branch in seq_ids[0]:
            if branch != self._seq_id:
                self._bring_up(branch, begin, begin + max(depths) + 1)
        positions = [begin + depth for depth in depths]
        rows = self.context.decode([root, *tokens], positions, seq_ids)
        self.tokens.append(root)
        self._scored = _Scored(begin, tokens, seq_ids)
        return rows

    def _seq_ids(self, parents: Sequence[int]) -> list[tuple[int, ...]]:
        """For the root and each node the sequences of the paths through it."""
        through: list[list[int]] = [[] for _ in range(len(parents) + 1)]
        free = [*reversed(self._branches), self._seq_id]
        leaves = sorted({*range(len(parents))}.difference(parents))
        if len(leaves) > len(free):
            raise ContextError(f"a tree of {len(leaves)} paths, but there are {self.paths}")
        for leaf in leaves:
            through[leaf + 1].append(free.pop())
        for node in range(len(parents), 0, -1):
            through[parents[node - 1] + 1] += through[node]
        return [tuple(sorted(ids)) for ids in through]

    def _bring_up(self, branch: int, begin: int, end: int) -> None:
        """Let `branch` hold the text up to `begin`; it may soon hold up to `end`."""
        if self._branches[branch] < begin:
            self.context.copy(self._seq_id, branch, self._branches[branch], begin)
        self._branches[branch] = end

    def keep(self, path: Sequence[int]) -> None:
        """Of what `score_tree` was given, keep the root and the nodes of `path`, and nothing else.

        Nothing is computed again. `path` goes from the top of the tree down.
        """
        scored, end = self._scored, self._scored.begin + 1
        self._scored = _Scored()
        if not scored.tree:
            self.truncate(end + len(path))
            return
        # Some sequence that holds all of the path; it is renamed by sharing its cells.
        holder = scored.seq_ids[path[-1] + 1][0] if path else self._seq_id
        for seq_id in scored.seq_ids[0]:
            self._cut(seq_id, end + len(path) * (seq_id == holder))
        if holder != self._seq_id:
            self.context.copy(holder, self._seq_id, end, end + len(path))
        self.tokens += [scored.tree[node] for node in path]

    def _cut(self, seq_id: int, n: int) -> None:
        self.context.truncate(n, seq_id=seq_id)
        if seq_id != self._seq_id:
            self._branches[seq_id] = n

    def hidden(self, path: Sequence[int]) -> Rows:
        """The final hidden states of the root and the nodes of `path` in the pass scored last.

        Returns:
            float32, (1 + len(path), n_embd), that lives until the context's next pass. Only where
            the context was made with `hidden=True`.
        """
        nodes = [0, *(node + 1 for node in path)]
        rows = self.context.hidden_rows(max(nodes) + 1)
        if len(nodes) == len(rows):
            return rows
        chosen: Rows = rows.take(nodes, axis=0)
        return chosen

    def prefill(
        self,
        tokens: Sequence[int],
        progress: PrefillProgress | None = None,
        embeddings: Rows | None = None,
    ) -> None:
        """Feed `tokens` in batches, without logits. Errors: `Context.decode`.

        What was fed before `progress` raises stays in the cache and in `tokens`.

        Args:
            embeddings: as for `score`.
        """
        batch = self.context.n_batch
        for begin in range(0, len(tokens), batch):
            part = tokens[begin : begin + batch]
            rows = None if embeddings is None else embeddings[begin : begin + batch]
            self._feed(part, [False] * len(part), rows)
            if progress is not None:
                progress(begin + len(part), len(tokens))

    def prefill_hidden(
        self, tokens: Sequence[int], most: int, progress: PrefillProgress | None = None
    ) -> Rows:
        """As `prefill`; the hidden states of the last tokens, `most` or what one pass gives.

        llama.cpp works out the logits of all rows whose hidden states it gives: with a large
        vocabulary that takes as long as the rest of the model, so ask for few.

        Returns:
            float32, (rows, n_embd), a copy.
        """
        rows = min(most, len(tokens), self.context.max_outputs)
        before = len(tokens) - rows
        self.prefill(tokens[:before], progress)
        if not rows:
            return np.empty((0, self.context.model.n_embd), np.float32)
        self.score(tokens[before:])
        if progress is not None:
            progress(len(tokens), len(tokens))
        features: Rows = self.context.hidden_rows(rows).copy()
        return features

    def _feed(
        self, tokens: Sequence[int], outputs: Sequence[bool] | None, embeddings: Rows | None
    ) -> Rows:
        begin = len(self.tokens)
        positions = range(begin, begin + len(tokens))
        seq_ids = [(self._seq_id,)] * len(tokens)
        if embeddings is None:
            rows = self.context.decode(tokens, positions, seq_ids, outputs=outputs)
        else:
            rows = self.context.decode_embeddings(embeddings, positions, seq_ids, outputs=outputs)
        self.tokens += tokens
        return rows

    def truncate(self, n: int) -> None:
        """Keep the first `n` tokens; all are forgotten where the memory cannot be rolled back."""
        if n < len(self.tokens):
            self._forget_from(n)

    def _forget_from(self, n: int) -> None:
        if not self.context.truncate(n, seq_id=self._seq_id):
            self.context.truncate(0, seq_id=self._seq_id)
            n = 0
        for branch, held in self._branches.items():
            if held > n:
                self._cut(branch, n)
        del self.tokens[n:]

    def reuse(self, tokens: Sequence[int]) -> int:
        """Keep the longest common prefix with `tokens` and return its length."""
        pairs = zip(self.tokens, tokens, strict=False)
        same = next((i for i, (mine, its) in enumerate(pairs) if mine != its), None)
        shared = min(len(self.tokens), len(tokens)) if same is None else same
        # Even if nothing differs: a pass that was interrupted may have left tokens behind.
        self._forget_from(shared)
        return len(self.tokens)

    def drop(self, begin: int, end: int) -> bool:
        """Forget tokens `begin` .. `end` - 1 and move the rest down, without evaluating any.

        Returns:
            Whether the memory can do that; no token is lost where not.
        """
        for branch in self._branches:
            self._cut(branch, 0)
        if not self.context.shift(begin, end, seq_id=self._seq_id):
            return False
        del self.tokens[begin:end]
        return True
