"""Drafts from what the target said before: the tokens that it last held for likeliest after each.

Token recycling: Luo et al. 2024, "Turning Trash into Treasure: Accelerating Inference of Large
Language Models with Token Recycling" (arXiv 2408.08696).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spec_cpu.draft.base import Follows, Path, Scored
from spec_cpu.llama.context import Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import PrefillProgress
from spec_cpu.sampling.logits import RowOps

KEPT = 8  # tokens that are kept after each
_NONE = -1
# The target was sure of what follows in that text, not in this one: how often such tokens came true
# in three short answers.
_SOFTER = 1.5  # temperature of their probabilities
_TRUST = 0.6  # that one of them comes true
_LEAST = 0.01  # what is less likely is not worth looking at


class RecycledSource:
    """A table: for each token the likeliest ones after it, by the last row that it had.

    Every row of a pass of the target counts, those of rejected nodes, too. Beside the tokens it
    keeps their probabilities among themselves, tempered: how sure the target was then.
    """

    name = "recycled"
    by_features = False
    model: Model | None = None
    sequence: KVSequence | None = None
    window: int | None = None

    def __init__(self, n_vocab: int, rows: RowOps) -> None:
        """For a target of `n_vocab` tokens: 49 bytes for each."""
        self._rows = rows
        self._kept = min(KEPT, n_vocab)
        self._tokens = np.full((n_vocab, self._kept), _NONE, np.int32)
        self._sure = np.zeros((n_vocab, self._kept), np.float16)
        self._mine = np.zeros(n_vocab, np.bool_)  # rows of this run
        self._last = 0  # of the text

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
        """The table stays: it is the target's, not the text's."""
        self._last = prompt[-1]

    def follows(self, path: Path) -> Follows:
        """What the target last held for likeliest after this token."""
        last = path[-1] if path else self._last
        tokens = self._tokens[last].tolist()
        if tokens[0] == _NONE:
            return ()
        sure = self._sure[last].tolist()
        return [pair for pair in zip(tokens, sure, strict=True) if pair[1] > _LEAST]

    def commit(self, tokens: Sequence[int], scored: Scored) -> None:
        """Keep the likeliest after each token that was fed."""
        self._last = tokens[-1]
        best = np.array([self._rows.top_k(row, self._kept) for row in scored.logits])
        logits = scored.logits[np.arange(len(best))[:, None], best]
        chances = np.exp((logits - logits[:, :1]) / _SOFTER)
        self._mine[scored.fed] = True
        self._tokens[scored.fed] = best
        self._sure[scored.fed] = _TRUST * chances / chances.sum(1, keepdims=True)

    def forget(self) -> None:
        """Empty the table."""
        self._tokens[:, 0] = _NONE
        self._mine[:] = False

    def state(self) -> Mapping[str, NDArray[Any]]:
        """The rows that there are: `after`, (n,), and its `tokens` and how `sure`, (n, kept)."""
        after = np.flatnonzero(self._tokens[:, 0] != _NONE).astype(np.int32)
        return {"after": after, "tokens": self._tokens[after], "sure": self._sure[after]}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take the rows of another run, in place of those taken before, where this has none.

        Raises:
            ValueError: they are not for such a table.
        """
        self._tokens[~self._mine, 0] = _NONE
        if not state:
            return
        after, tokens, sure = (state.get(name) for name in ("after", "tokens", "sure"))
        if after is None or tokens is None or sure is None:
            raise ValueError("a row of the table has no tokens")
        if not tokens.shape == sure.shape == (len(after), self._kept):
            raise ValueError(f"the table has rows of {self._kept}, not {tokens.shape}")
        taken = ~self._mine[after]
        self._tokens[after[taken]], self._sure[after[taken]] = tokens[taken], sure[taken]

    def close(self) -> None:
        """It holds nothing but memory."""
