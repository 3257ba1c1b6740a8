"""One sequence of a context, and which tokens of it are in the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from spec_cpu.errors import ContextError
from spec_cpu.llama.branches import Branches, Places
from spec_cpu.llama.context import Context, Rows, Saved
from spec_cpu.progress import PrefillProgress


class KVSequence:
    """A sequence whose first `len(tokens)` tokens have their keys and values in the cache.

    `tokens` is what was fed, in order: position i holds token i. Where the model takes embeddings
    a token stands for the row that was fed.

    A tree that follows the text is scored in one pass (`score_tree`) or grown pass by pass
    (`score_tree`, then `grow`), with a sequence of llama.cpp's for each of its paths: see
    `Branches`. What is accepted of it becomes text by `keep`, without being computed again.
    """

    rereads = 0  # what was fed stays: see `draft.base.DraftPasses`

    def __init__(self, context: Context, seq_id: int = 0, branches: Sequence[int] = ()) -> None:
        """Use sequence `seq_id` of `context`, and for trees `branches`, which nobody else uses."""
        self.context = context
        self.tokens: list[int] = []
        self._seq_id = seq_id
        self._branches = Branches(context, seq_id, branches)
        self._tree: list[int] = []  # tokens of the nodes
        self._row = 0  # of its root, in the pass that scored it

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def paths(self) -> int:
        """Paths that a tree may have."""
        return self._branches.paths

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
        """Feed `root` and a tree that grows from it in one pass: `score_trees` of one."""
        return score_trees([(self, root, tokens, parents)])[0]

    def _place(self, parents: Sequence[int]) -> Places:
        """Where to feed a root that follows the text, and a tree that grows from it."""
        begin = len(self)
        if _is_chain(parents):
            n = 1 + len(parents)
            return [*range(begin, begin + n)], [(self._seq_id,)] * n
        self._branches.root(begin)
        return self._branches.place(parents)

    def _unplace(self) -> None:
        """What was to be fed where `_place` said was not."""
        self._branches.forget_from(len(self))

    def _fed(self, root: int, tokens: Sequence[int], parents: Sequence[int], row: int) -> None:
        """They were fed where `_place` said: `row` of the pass is the root's."""
        if _is_chain(parents):
            self._branches.root(len(self), fed=1 + len(tokens))
        self.tokens.append(root)
        self._tree = list(tokens)
        self._row = row

    def plant(self) -> None:
        """What was fed last becomes the root of a tree for `grow`."""
        self._branches.root(len(self) - 1, fed=1)
        self._tree = []

    def grow(
        self, tokens: Sequence[int], parents: Sequence[int], embeddings: Rows | None = None
    ) -> Rows:
        """Feed more nodes of the tree that was scored or planted last, in one pass.

        Args:
            tokens: of the new nodes, numbered on from those there are.
            parents: the node that each one follows; -1 is the root. New ones, too, each after its
                parent.
            embeddings: as for `score`.

        Returns:
            The logits after each new node: (len(tokens), n_vocab). A view that lives until the
            context's next pass.

        Raises:
            ContextError: more than fits, or more paths than `paths`.
        """
        places = self._branches.place(parents)
        if embeddings is None:
            rows = self.context.decode(tokens, *places)
        else:
            rows = self.context.decode_embeddings(embeddings, *places)
        self._tree += tokens
        return rows

    def keep(self, path: Sequence[int]) -> None:
        """Of the tree that was scored, keep the root and the nodes of `path`, and nothing else.

        Nothing is computed again. `path` goes from the top of the tree down.
        """
        self._branches.keep(path)
        self.tokens += [self._tree[node] for node in path]
        self._tree = []

    def hidden(self, path: Sequence[int]) -> Rows:
        """The final hidden states of the root and the nodes of `path` in the pass scored last.

        Returns:
            float32, (1 + len(path), n_embd), that lives until the context's next pass. Only where
            the context was made with `hidden=True`.
        """
        nodes = [self._row, *(self._row + node + 1 for node in path)]
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
        self._branches.forget_from(n)
        self._tree = []
        del self.tokens[n:]

    def reuse(self, tokens: Sequence[int]) -> int:
        """Keep the longest common prefix with `tokens` and return its length."""
        # Even if nothing differs: a pass that was interrupted may have left tokens behind.
        self._forget_from(shared_prefix(self.tokens, tokens))
        return len(self.tokens)

    def state(self) -> Saved:
        """What the cache holds of the sequence: a copy, for `set_state`."""
        return self.context.state(self._seq_id)

    def set_state(self, saved: Saved, tokens: Sequence[int]) -> bool:
        """Put what `state` gave in place of what is in the cache; `tokens` were fed for it.

        Returns:
            Whether it fits; nothing is in the cache where not.
        """
        self._forget_from(0)
        if len(tokens) > self.context.n_ctx or not self.context.set_state(saved, self._seq_id):
            return False
        self.context.taken += len(tokens)
        self.tokens = list(tokens)
        return True

    def share(self, other: KVSequence, n: int) -> None:
        """Begin as `other` does: its first `n` tokens, in the same cells. Nothing is computed.

        It begins with none where the memory cannot be rolled back to them.
        """
        self._forget_from(0)
        if n < len(other) and not self.context.model.can_rollback:
            return
        self.context.copy(other._seq_id, self._seq_id, 0, n)
        self.tokens = other.tokens[:n]

    def drop(self, begin: int, end: int) -> bool:
        """Forget tokens `begin` .. `end` - 1 and move the rest down, without evaluating any.

        Returns:
            Whether the memory can do that; no token is lost where not.
        """
        self._branches.forget_from(0)
        if not self.context.shift(begin, end, seq_id=self._seq_id):
            return False
        del self.tokens[begin:end]
        return True


Planted: TypeAlias = tuple[KVSequence, int, Sequence[int], Sequence[int]]
"""A tree to score: the text that it follows, its root, and its nodes' tokens and parents.

The root follows what is in the cache. Each node comes after its parent; -1 is the root.
"""


def score_trees(trees: Sequence[Planted]) -> list[Rows]:
    """Feed the trees of several texts, all of one context, in one pass.

    Afterwards `KVSequence.keep` says for each what stays of it.

    Returns:
        Of each tree the logits after the root and after each node: (nodes + 1, n_vocab). Views that
        live until the context's next pass.

    Raises:
        ContextError: more than fits, or as for `Context.decode`. Nothing is changed.
    """
    fed: list[int] = []
    positions: list[int] = []
    seq_ids: list[tuple[int, ...]] = []
    try:
        for sequence, root, tokens, parents in trees:
            places = sequence._place(parents)
            fed += [root, *tokens]
            positions += places[0]
            seq_ids += places[1]
        rows = trees[0][0].context.decode(fed, positions, seq_ids)
    except ContextError:
        for sequence, *_ in trees:
            sequence._unplace()
        raise
    parts, row = [], 0
    for sequence, root, tokens, parents in trees:
        sequence._fed(root, tokens, parents, row)
        parts.append(rows[row : row + 1 + len(tokens)])
        row += 1 + len(tokens)
    return parts


def shared_prefix(mine: Sequence[int], its: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(mine, its, strict=False)
    differ = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(differ, min(len(mine), len(its)))


def _is_chain(parents: Sequence[int]) -> bool:
    return all(parent == node - 1 for node, parent in enumerate(parents))
