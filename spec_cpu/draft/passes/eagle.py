"""Drafts from an EAGLE head: a block that goes on from the target's own hidden state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_cpu.draft.base import Follows, Path, Scored, Shape
from spec_cpu.draft.passes.eagle_passes import EaglePasses
from spec_cpu.draft.reader import Reader
from spec_cpu.draft.tree import ROOT
from spec_cpu.heads.eagle import EagleHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import shared_prefix
from spec_cpu.llama.tensors import Tensor
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.logits import Logits

_WINDOW = 32  # rows of the text that it reads where it has not followed along


class EagleSource:
    """A head: the likeliest tokens by its own processed distribution q, or draws from it, over its
    own few tokens.

    Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", and, of
    trees, "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees". Row i of
    its cache takes the target's feature f_i and the token t_{i+1}, and foretells t_{i+2}. Drafting
    deeper it takes its own hidden state for the feature. When the target has scored the draft the
    rows made so are forgotten, and made anew with true features by the next cycle's first step.

    Of a long prompt, or of text that was decoded without it, it reads the end only: llama.cpp gives
    features of rows together with their logits, which take long in a large vocabulary.

    The text is always that of rows `_start` .. in the cache, then `_pending`, then one token whose
    feature is not known yet.
    """

    name = "eagle"
    by_features = True
    layers = 1

    def __init__(
        self,
        head: EagleHead,
        model: Model,
        context: Context,
        embedding: Tensor,
        *,
        shape: Shape = "chain",
    ) -> None:
        """Draft with `head`, run by `model` through `context`, both closed by `close`.

        Args:
            context: of 32 tokens at least, with hidden states.
            embedding: the target's token_embd.weight.
            shape: a tree has as many paths as the context has sequences.
        """
        self.model = model
        self.shape = shape
        self._context = context
        self.ids = head.label.tokens.astype(np.intp)
        self.acceptance = head.label.acceptance
        self._passes = EaglePasses(head, context, embedding)
        self._room = 1  # nodes that may be fed in this cycle
        # Of this cycle: nodes in the cache behind the text, and the features of each.
        self._fed: dict[Path, int] = {}
        self._hidden: dict[Path, Rows] = {}
        self._text: list[int] = []
        self._start = 0  # the text's row that is the first in the cache
        self._base = 0  # rows in the cache that were made with true features
        self._pending: list[int] = []
        self._features: list[Rows] = []  # of the pending tokens, some rows each

    @property
    def window(self) -> int:
        """Rows that it reads, at most, to take up drafting again."""
        return min(_WINDOW, self._context.n_ctx // 4)

    @property
    def sequence(self) -> EaglePasses:
        """Its passes, for measuring what they cost."""
        return self._passes

    def lacks(self, prompt: Sequence[int]) -> int:
        """Rows up to those that it knows; the end of the prompt if that is too many."""
        return min(self.window, len(prompt) - 1 - self._known(prompt))

    def _known(self, prompt: Sequence[int]) -> int:
        """The row of the prompt up to which it knows all; 0 if nothing."""
        rows = self._start + self._base + len(self._pending)
        same = shared_prefix(self._text, prompt)
        # A row is known if its token is, and the last one is needed again for its logits.
        known = min(rows, same - 1, len(prompt) - 2)
        return max(0, known if known >= self._start else 0)

    def begin(
        self,
        prompt: Sequence[int],
        progress: PrefillProgress | None = None,
        *,
        features: Rows | None = None,
    ) -> None:
        """Take in all rows of the prompt that it can know but the last."""
        known = self._known(prompt)
        self._fell()
        self._passes.clear()
        self._take_in_pending()
        rows = 0 if features is None else len(features)
        first = len(prompt) - 1 - rows  # the row that `features` begin with
        if self._start <= first <= known:
            self._cut(known - self._start)
        else:
            self._restart(first)
            known = first
        self._text = list(prompt)
        if features is not None:
            self._add(prompt[known + 1 :], features[known - first :])
        self._take_in_pending(but=1)

    @property
    def paths(self) -> int:
        """One for each sequence of its context."""
        return self._passes.paths

    def able(self, reader: Reader, nodes: int) -> int:
        """None where no feature is known yet, or every token that it has is forbidden."""
        if not self._pending or not reader.pipeline.allows_any(self.ids):
            return 0
        self._room = min(nodes, self._context.n_ctx // 2)
        return self._room

    def expand(self, paths: Sequence[Path], reader: Reader) -> list[Follows]:
        """See `Passes`."""
        rows = self._feed(paths)
        return [
            reader.likeliest(row, path, self.ids) for row, path in zip(rows, paths, strict=True)
        ]

    def logits(self, path: Path) -> Logits:
        """See `Drawing`."""
        row: Logits = self._feed([path])[0]
        return row

    def _feed(self, paths: Sequence[Path]) -> Rows:
        """The logits after each path. Below the root its own hidden state stands for a feature."""
        if not paths[0]:
            rows = self._catch_up(self._room)[None]
            self._passes.plant()
            self._fed, self._hidden = {(): ROOT}, {(): self._passes.feature.copy()}
            return rows
        parents = [path[:-1] for path in paths]
        rows, hidden = self._passes.grow(
            [path[-1] for path in paths],
            [self._fed[parent] for parent in parents],
            np.stack([self._hidden[parent] for parent in parents]),
        )
        for path, after in zip(paths, hidden, strict=True):
            self._fed[path] = len(self._fed) - 1
            self._hidden[path] = after
        return rows

    def _fell(self) -> None:
        """Forget what was drafted."""
        if self._fed:
            self._passes.fell()
            self._fed, self._hidden = {}, {}
        self._passes.truncate(self._base)

    def commit(self, tokens: Sequence[int], scored: Scored) -> None:
        """Forget what was drafted; `tokens` are pending with their true features."""
        self._fell()
        self._text += tokens
        if scored.features is None:
            self._restart(len(self._text) - 1)
            return
        self._add(tokens, scored.features.copy())
        if len(self._pending) > 2 * self.window:
            self._skip_to(self.window)

    def forget(self) -> None:
        """It reads the next text as if it had followed none: how much it knows decides its q."""
        self._fell()
        self._restart(0)
        self._text = []

    def close(self) -> None:
        self._context.close()
        self.model.close()

    def _add(self, tokens: Sequence[int], features: Rows) -> None:
        self._pending += tokens
        self._features.append(features)

    def _restart(self, row: int) -> None:
        """Know nothing of the text before `row`."""
        self._cut(0)
        self._start = row
        self._pending, self._features = [], []

    def _cut(self, n: int) -> None:
        self._passes.truncate(n)
        self._base = n

    def _skip_to(self, n: int) -> None:
        """Keep the last `n` pending rows, and nothing else."""
        tokens, features = self._pending[-n:], np.concatenate(self._features)[-n:]
        self._restart(len(self._text) - 1 - n)
        self._add(tokens, features)

    def _take_in_pending(self, but: int = 0) -> Rows:
        """Feed what is pending but the last rows; the features of those."""
        if not self._pending:
            return np.empty((0, 0), np.float32)
        n = len(self._pending) - but
        features: Rows = np.concatenate(self._features)
        self._make_room(n)
        self._passes.take_in(self._pending[:n], features[:n])
        self._base = len(self._passes)
        self._pending, self._features = self._pending[n:], [features[n:]]
        return features[n:]

    def _catch_up(self, k: int) -> Logits:
        """Feed what is pending; the logits after it."""
        if len(self._pending) > self.window:
            # After a long stretch without drafts: what is skipped costs acceptance only.
            self._skip_to(self.window)
        self._make_room(len(self._pending) + k)
        features = self._take_in_pending(but=min(len(self._pending), self._passes.most))
        logits = self._passes.step(self._pending, features)
        self._base = len(self._passes)
        self._pending, self._features = [], []
        return logits

    def _make_room(self, n: int) -> None:
        """Forget the older half of the cache, and more if need be, so that `n` more rows fit."""
        most = self._context.n_ctx
        if self._base + n <= most:
            return
        gone = max(self._base // 2, self._base + n - most)
        self._passes.drop(gone)
        self._start += self._base - len(self._passes)
        self._base = len(self._passes)
