"""The passes of an EAGLE head: (token, feature) pairs in, logits and a feature of its own out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_cpu.heads.eagle import EagleHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.kernels import Matrix
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.llama.tensors import Tensor
from spec_cpu.sampling.logits import Logits

_KEPT_BYTES = 32 * 2**20  # of embeddings that need not be worked out again


class EaglePasses:
    """A head's own sequence. Row i stands for the pair of a token and the feature before it.

    What depends on the token alone is kept: texts repeat their tokens, and it is half of what a
    step has to do besides llama.cpp's pass.

    Attributes:
        context: the head's, with hidden states; nobody else uses its sequence 0.
        rereads: pairs that a cycle's first step takes in with true features, in place of drafted
            ones: about the tokens that it accepts.
    """

    rereads = 2

    def __init__(self, head: EagleHead, context: Context, embedding: Tensor) -> None:
        """Run `head` in `context`, with the target's `embedding` (token_embd.weight)."""
        self.context = context
        self._kv = KVSequence(context, branches=range(1, context.n_seq))
        self._combine_feature = Matrix(head.combine_feature, context.model.library)
        self._combine_embedding = Matrix(head.combine_embedding, context.model.library)
        self._bias = head.bias
        self._scales = head.feature_scale, head.embedding_scale
        self._width = head.label.target.n_embd
        self._embedding = embedding
        self._rows = 0  # of the last step
        self._embedded: dict[int, Rows] = {}
        self._most_embedded = _KEPT_BYTES // (4 * self._width)

    def __len__(self) -> int:
        return len(self._kv)

    def take_in(self, tokens: Sequence[int], features: Rows) -> None:
        """Feed pairs, without logits.

        Args:
            features: float32, (len(tokens), n_embd): what is beyond the head's width is left out.
        """
        if len(tokens):
            self._kv.prefill(tokens, embeddings=self._inputs(tokens, features))

    @property
    def most(self) -> int:
        """Pairs that a step may have."""
        return self.context.max_outputs

    def step(self, tokens: Sequence[int], features: Rows) -> Logits:
        """Feed pairs, at most `most`; the logits of what comes after the last.

        Args:
            features: float32, (len(tokens), n_embd).

        Returns:
            float32, (V,): a view that lives until the next pass.
        """
        self._rows = len(tokens)
        logits: Logits = self._kv.score(tokens, self._inputs(tokens, features))[-1]
        return logits

    @property
    def feature(self) -> Rows:
        """What stands for the feature after the last step: float32, (n,), a view as `step`'s."""
        row: Rows = self.context.hidden_rows(self._rows)[-1]
        return row

    @property
    def paths(self) -> int:
        """Paths that a tree may have."""
        return self._kv.paths

    def plant(self) -> None:
        """The last step's pair becomes the root of a tree."""
        self._kv.plant()

    def grow(
        self, tokens: Sequence[int], parents: Sequence[int], features: Rows
    ) -> tuple[Rows, Rows]:
        """Feed more pairs of the planted tree in one pass.

        Args:
            parents: as for `KVSequence.grow`.
            features: float32, (n, n_embd): those of the parents.

        Returns:
            The logits after each, (n, V), a view as `step`'s, and features: (n, n_embd), a copy.
        """
        logits = self._kv.grow(tokens, parents, self._inputs(tokens, features))
        return logits, self.context.hidden_rows(len(tokens)).copy()

    def fell(self) -> None:
        """Forget all of the tree but its root."""
        self._kv.keep([])

    def score(self, tokens: Sequence[int]) -> Rows:
        """A step with features of no meaning, to be timed: the logits after the last, (1, V)."""
        return self.step(tokens, np.zeros((len(tokens), self._width), np.float32))[None]

    def prefill(self, tokens: Sequence[int]) -> None:
        """Take in `tokens` with features of no meaning, to be timed."""
        self.take_in(tokens, np.zeros((len(tokens), self._width), np.float32))

    def truncate(self, n: int) -> None:
        """Keep the first `n` rows."""
        self._kv.truncate(n)

    def clear(self) -> None:
        """Free what a pass that was interrupted left behind the rows that are known."""
        self._kv.reuse(self._kv.tokens)

    def drop(self, n: int) -> None:
        """Forget the first `n` rows, or all where the rest cannot be moved."""
        if not self._kv.drop(0, n):
            self._kv.truncate(0)

    def _inputs(self, tokens: Sequence[int], features: Rows) -> Rows:
        rows = self._combine_feature.times(self._scales[0] * features[:, : self._width])
        for i, token in enumerate(tokens):
            rows[i] += self._embed(token)
        return rows

    def _embed(self, token: int) -> Rows:
        """The part of the input that `token` makes up."""
        known = self._embedded.get(token)
        if known is None:
            if len(self._embedded) >= self._most_embedded:
                self._embedded.clear()
            row = self._embedding.rows([token])[:, : self._width]
            known = self._combine_embedding.times(self._scales[1] * row)[0] + self._bias
            self._embedded[token] = known
        return known
