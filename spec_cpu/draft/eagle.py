"""Drafts from an EAGLE head: a block that goes on from the target's own hidden state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.base import Shape
from spec_cpu.draft.chain import draw_chain
from spec_cpu.draft.growth import Follows, Reader, grow, most_fed
from spec_cpu.draft.head_passes import HeadPasses
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.errors import LogitsError, ModelError
from spec_cpu.heads.eagle import EagleHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import Tensor
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.logits import Logits
from spec_cpu.sampling.pipeline import Pipeline

_WINDOW = 32  # rows of the text that it reads where it has not followed along


class EagleDrafter:
    """A head: a chain sampled from its own processed distribution q, or a tree of the likeliest
    tokens by that, over its own few tokens.

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
    free = False
    by_features = True
    shape: Shape = "chain"

    def __init__(
        self,
        head: EagleHead,
        model: Model,
        context: Context,
        embedding: Tensor,
        *,
        ends: AbstractSet[int],
        shape: Shape = "chain",
    ) -> None:
        """Draft with `head`, run by `model` through `context`, both closed by `close`.

        Args:
            context: of 32 tokens at least, with hidden states.
            embedding: the target's token_embd.weight.
            ends: the target's tokens that end a text.
            shape: a tree has as many paths as the context has sequences.
        """
        self.model = model
        self.shape = shape
        self._context = context
        self._ids = head.label.tokens.astype(np.intp)
        self._passes = HeadPasses(head, context, embedding)
        self._ends = ends
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
    def sequence(self) -> HeadPasses:
        """Its passes, for measuring what they cost."""
        return self._passes

    def lacks(self, prompt: Sequence[int]) -> int:
        """Rows up to those that it knows; the end of the prompt if that is too many."""
        return min(self.window, len(prompt) - 1 - self._known(prompt))

    def _known(self, prompt: Sequence[int]) -> int:
        """The row of the prompt up to which it knows all; 0 if nothing."""
        rows = self._start + self._base + len(self._pending)
        same = _shared(self._text, prompt)
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
        self._passes.truncate(self._base)
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

    def propose(
        self,
        history: Sequence[int],
        k: int,
        pipeline: Pipeline,
        rng: np.random.Generator,
        schedule: Schedule,
    ) -> TokenTree:
        """A chain or tree of at most `k` tokens, none of them after one that ends the text.

        None where no feature is known yet, or every token that it has is forbidden.

        Raises:
            ModelError: the head is damaged.
        """
        if not self._pending or not pipeline.allows_any(self._ids):
            return TokenTree()
        try:
            if self.shape == "tree":
                return self._grow(history, k, pipeline, schedule)
            k = min(k, self._context.n_ctx // 2)
            return draw_chain(
                self._catch_up(k),
                self._after,
                history,
                k,
                pipeline,
                rng,
                schedule,
                ends=self._ends,
                tokens=self._ids,
            )
        except LogitsError as error:
            raise ModelError(f"{self.model.path.name}: {error}") from None

    def _grow(
        self, history: Sequence[int], k: int, pipeline: Pipeline, schedule: Schedule
    ) -> TokenTree:
        k = min(k, self._context.n_ctx // 4)
        growing = _Growing(
            lambda: self._catch_up(most_fed(k)),
            self._passes,
            Reader(pipeline, pipeline.recent(history), self._ids),
        )
        try:
            tree, _ = grow(growing, k, schedule, ends=self._ends, paths=self._passes.paths)
        finally:  # what was planted must not stay, however it ends
            if growing.features:
                self._passes.fell()
        return tree

    def commit(self, tokens: Sequence[int], features: Rows | None = None) -> None:
        """Forget what was drafted; `tokens` are pending with their true features."""
        self._passes.truncate(self._base)
        self._text += tokens
        if features is None:
            self._restart(len(self._text) - 1)
            return
        self._add(tokens, features.copy())
        if len(self._pending) > 2 * self.window:
            self._skip_to(self.window)

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

    def _after(self, token: int) -> Logits:
        """A draft step: the head's own hidden state stands for the feature."""
        return self._passes.step([token], self._passes.feature[None])

    def _make_room(self, n: int) -> None:
        """Forget the older half of the cache, and more if need be, so that `n` more rows fit."""
        most = self._context.n_ctx
        if self._base + n <= most:
            return
        gone = max(self._base // 2, self._base + n - most)
        self._passes.drop(gone)
        self._start += self._base - len(self._passes)
        self._base = len(self._passes)


@dataclass(frozen=True, slots=True)
class _Growing:
    """The passes that grow a tree: a `growth.Expander`.

    Attributes:
        take_in: feeds the text so far; the logits after it.
        features: of the root and of each node fed.
    """

    take_in: Callable[[], Logits]
    passes: HeadPasses
    reader: Reader
    features: dict[int, Rows] = field(default_factory=dict)

    def root(self) -> Follows:
        follows = self.reader.root(self.take_in())
        self.features[ROOT] = self.passes.feature.copy()
        self.passes.plant()
        return follows

    def expand(self, fed: TokenTree, new: range) -> list[Follows]:
        nodes = slice(new.start, new.stop)
        parents = fed.parents[nodes]
        before = np.stack([self.features[parent] for parent in parents])
        logits, after = self.passes.grow(fed.tokens[nodes], parents, before)
        self.features.update(zip(new, after, strict=True))
        return self.reader.nodes(logits, fed, new)


def _shared(mine: Sequence[int], its: Sequence[int]) -> int:
    """The length of the common beginning."""
    pairs = zip(mine, its, strict=False)
    differ = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(differ, min(len(mine), len(its)))
