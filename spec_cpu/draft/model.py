"""Drafts from a small model of the target's family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.base import Shape
from spec_cpu.draft.chain import draw_chain
from spec_cpu.draft.growth import Follows, Reader, grow, most_fed
from spec_cpu.draft.tree import TokenTree
from spec_cpu.errors import LogitsError, ModelError
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.logits import Logits
from spec_cpu.sampling.pipeline import Pipeline

_FEW = 4  # so many missing tokens are fed one by one, which lets llama.cpp reuse its graph
_SINKS = 4  # first tokens that stay when the window slides: attention rests on them
_WINDOW = 64
MIN_CONTEXT = 32  # room to slide in


class ModelDrafter:
    """A draft model: a chain sampled from its own processed distribution q, or a tree of the
    likeliest tokens by that.

    Its KV cache runs behind the text: `_pending` is what it has not been fed, the last token at
    least. Where its context is smaller than the text it drafts from a sliding window, which costs
    acceptance only.
    """

    name = "model"
    free = False
    by_features = False

    def __init__(
        self, model: Model, context: Context, *, n_vocab: int, shape: Shape = "chain"
    ) -> None:
        """Draft with `model` through `context`, both closed by `close`.

        Args:
            context: of `MIN_CONTEXT` tokens at least.
            n_vocab: the target's; tokens that only the draft has are never proposed.
            shape: a tree has as many paths as the context has sequences.
        """
        self.model = model
        self.shape = shape
        self._context = context
        self._n_vocab = n_vocab
        self._kv = KVSequence(context, branches=range(1, context.n_seq))
        self._base = 0  # tokens in the cache when the proposal began
        self._fed: TokenTree | None = None  # in the cache behind those, of a tree
        self._pending: list[int] = []

    def lacks(self, prompt: Sequence[int]) -> int:
        """It wants no features."""
        return 0

    def begin(
        self,
        prompt: Sequence[int],
        progress: PrefillProgress | None = None,
        *,
        features: Rows | None = None,
    ) -> None:
        """Evaluate all of the prompt that fits the window but its last token."""
        prompt = self._known(prompt)
        window = prompt[-self._context.n_ctx // 2 :] if len(prompt) > self._room else prompt
        known = self._kv.reuse(window[:-1])
        self._kv.prefill(window[known:-1], progress)
        self._base, self._pending = len(self._kv), [window[-1]]
        self._fed = None

    def propose(
        self,
        history: Sequence[int],
        k: int,
        pipeline: Pipeline,
        rng: np.random.Generator,
        schedule: Schedule,
    ) -> TokenTree:
        """A chain or tree of at most `k` tokens, none of them after one that ends the text.

        Raises:
            ModelError: the draft is damaged.
        """
        try:
            if self.shape == "tree":
                return self._grow(history, k, pipeline, schedule)
            k = min(k, self._context.n_ctx // 2)
            return draw_chain(
                self._catch_up(k)[0, : self._n_vocab],
                self._after,
                history,
                k,
                pipeline,
                rng,
                schedule,
                ends=self.model.vocab.end_tokens,
            )
        except LogitsError as error:
            raise ModelError(f"{self.model.path.name}: {error}") from None

    def _grow(
        self, history: Sequence[int], k: int, pipeline: Pipeline, schedule: Schedule
    ) -> TokenTree:
        k = min(k, self._context.n_ctx // 4)
        passes = _Passes(
            lambda: self._catch_up(most_fed(k)),
            self._kv,
            Reader(pipeline, pipeline.recent(history)),
            self._n_vocab,
        )
        ends = self.model.vocab.end_tokens
        tree, fed = grow(passes, k, schedule, ends=ends, paths=self._kv.paths)
        self._fed = None if self._pending else fed
        return tree

    def commit(self, tokens: Sequence[int], features: Rows | None = None) -> None:
        """Keep what was fed of `tokens`; the rest is pending."""
        if self._fed is not None:
            path = self._fed.descend(tokens[:-1])
            self._kv.keep(path)
            self._fed = None
            fed = len(path)
        else:
            fed = min(len(self._kv) - self._base, len(tokens) - 1)
            self._kv.truncate(self._base + fed)
        self._pending += self._known(tokens[fed:])
        self._base = len(self._kv)

    @property
    def window(self) -> int:
        """Tokens that it reads, at most, to take up drafting again."""
        return min(_WINDOW, self._context.n_ctx // 4)

    @property
    def sequence(self) -> KVSequence:
        """Its own sequence, for measuring what its passes cost."""
        return self._kv

    def close(self) -> None:
        self._context.close()
        self.model.close()

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """`tokens`, with any that only the target has replaced: what is drafted then is a guess."""
        n = self.model.vocab.n
        return [token if token < n else 0 for token in tokens]

    @property
    def _room(self) -> int:
        return self._context.n_ctx - _SINKS

    def _after(self, token: int) -> Logits:
        return self._kv.score([token])[0, : self._n_vocab]

    def _catch_up(self, k: int) -> Rows:
        """Feed what is pending; the logits after it."""
        *missing, last = self._pending
        if len(missing) > self.window:
            # After a long stretch without drafts: what is skipped costs acceptance only.
            self._kv.truncate(0)
            missing = missing[-self.window :]
        self._make_room(len(missing) + 1 + k)
        if len(missing) > _FEW:
            self._kv.prefill(missing)
        else:
            for token in missing:
                self._kv.score([token])
        logits = self._kv.score_tree(last, [], [])
        self._base, self._pending = len(self._kv), []
        return logits

    def _make_room(self, n: int) -> None:
        """Slide the window so that `n` more tokens fit: half of it is forgotten."""
        if len(self._kv) + n <= self._context.n_ctx:
            return
        keep_from = max(len(self._kv) // 2, len(self._kv) + n - self._context.n_ctx + _SINKS)
        if not self._kv.drop(_SINKS, keep_from):
            tail = self._kv.tokens[keep_from:]
            self._kv.truncate(0)
            self._kv.prefill(tail)


@dataclass(frozen=True, slots=True)
class _Passes:
    """The passes that grow a tree: a `growth.Expander`.

    Attributes:
        take_in: feeds the text so far; the logits after it.
        n_vocab: the target's; what only the draft has is not read.
    """

    take_in: Callable[[], Rows]
    kv: KVSequence
    reader: Reader
    n_vocab: int

    def root(self) -> Follows:
        return self.reader.root(self.take_in()[0, : self.n_vocab])

    def expand(self, fed: TokenTree, new: range) -> list[Follows]:
        nodes = slice(new.start, new.stop)
        rows = self.kv.grow(fed.tokens[nodes], fed.parents[nodes])
        return self.reader.nodes(rows[:, : self.n_vocab], fed, new)
