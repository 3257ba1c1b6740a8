"""Drafts from a small model of the target's family."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.draft.base import Follows, Path, Scored, Shape
from spec_cpu.draft.reader import Reader
from spec_cpu.draft.tree import ROOT
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.logits import Ids, Logits

_FEW = 4  # so many missing tokens are fed one by one, which lets llama.cpp reuse its graph
_SINKS = 4  # first tokens that stay when the window slides: attention rests on them
_WINDOW = 64
MIN_CONTEXT = 32  # room to slide in


class ModelSource:
    """A draft model: the likeliest tokens by its own processed distribution q, or draws from it.

    Its KV cache runs behind the text: `_pending` is what it has not been fed, the last token at
    least. Where its context is smaller than the text it drafts from a sliding window, which costs
    acceptance only.
    """

    name = "model"
    by_features = False
    layers = 1
    ids: Ids | None = None

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
        self._room = 1  # nodes that may be fed in this cycle
        self._fed: dict[Path, int] = {}  # of this cycle: nodes in the cache, behind the text
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
        most = self._context.n_ctx - _SINKS
        window = prompt[-self._context.n_ctx // 2 :] if len(prompt) > most else prompt
        known = self._kv.reuse(window[:-1])
        self._kv.prefill(window[known:-1], progress)
        self._pending, self._fed = [window[-1]], {}

    @property
    def paths(self) -> int:
        """One for each sequence of its context."""
        return self._kv.paths

    def able(self, reader: Reader, nodes: int) -> int:
        """At most half of the context."""
        self._room = min(nodes, self._context.n_ctx // 2)
        return self._room

    def expand(self, paths: Sequence[Path], reader: Reader) -> list[Follows]:
        """See `Passes`."""
        rows = self._feed(paths)
        return [reader.likeliest(row, path) for row, path in zip(rows, paths, strict=True)]

    def logits(self, path: Path) -> Logits:
        """See `Drawing`."""
        row: Logits = self._feed([path])[0]
        return row

    def _feed(self, paths: Sequence[Path]) -> Rows:
        """The logits after each path, over the target's tokens."""
        if not paths[0]:
            rows = self._catch_up()
            self._fed[()] = ROOT
        else:
            tokens = self._known([path[-1] for path in paths])
            rows = self._kv.grow(tokens, [self._fed[path[:-1]] for path in paths])
            for path in paths:
                self._fed[path] = len(self._fed) - 1
        return rows[:, : self._n_vocab]

    def commit(self, tokens: Sequence[int], scored: Scored) -> None:
        """Keep what was fed of `tokens`; the rest is pending."""
        kept: list[int] = []
        if self._fed:
            for n in range(1, len(tokens)):
                node = self._fed.get(tuple(tokens[:n]))
                if node is None:
                    break
                kept.append(node)
            self._kv.keep(kept)
            self._fed = {}
        self._pending += self._known(tokens[len(kept) :])

    @property
    def window(self) -> int:
        """Tokens that it reads, at most, to take up drafting again."""
        return min(_WINDOW, self._context.n_ctx // 4)

    @property
    def sequence(self) -> KVSequence:
        """Its own sequence, for measuring what its passes cost."""
        return self._kv

    def forget(self) -> None:
        """It has learnt nothing."""

    def close(self) -> None:
        self._context.close()
        self.model.close()

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """`tokens`, with any that only the target has replaced: what is drafted then is a guess."""
        n = self.model.vocab.n
        return [token if token < n else 0 for token in tokens]

    def _catch_up(self) -> Rows:
        """Feed what is pending; the logits after it."""
        *missing, last = self._pending
        if len(missing) > self.window:
            # After a long stretch without drafts: what is skipped costs acceptance only.
            self._kv.truncate(0)
            missing = missing[-self.window :]
        self._make_room(len(missing) + 1 + self._room)
        if len(missing) > _FEW:
            self._kv.prefill(missing)
        else:
            for token in missing:
                self._kv.score([token])
        logits = self._kv.score_tree(last, [], [])
        self._pending = []
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
