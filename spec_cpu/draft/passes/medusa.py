"""Drafts from Medusa heads: trees of what each of them holds for likeliest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_cpu.draft.base import Follows, Path, Scored, Shape
from spec_cpu.draft.passes.medusa_passes import MedusaPasses
from spec_cpu.draft.reader import Reader
from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.progress import PrefillProgress


class MedusaSource:
    """Heads that all look at the last feature known, f_i: head m foretells token i + 1 + m.

    Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
    Heads". What a head says does not depend on what the one before it says: one pass says what may
    follow any node, by how deep it is. How sure a head is of a candidate is the accuracy that was
    measured for its rank. Tokens are chosen, not drawn, so that the text is exact.
    """

    name = "medusa"
    shape: Shape = "tree"
    by_features = True
    window: int | None = 0
    paths = 1

    def __init__(self, head: MedusaHead, model: Model, context: Context) -> None:
        """Draft with `head`, run by `model` through `context`, both closed by `close`.

        Args:
            context: of one row a head at least.
        """
        self.model = model
        self.layers = len(head.accuracy)
        self._context = context
        self._ids = head.label.tokens.astype(np.intp)
        self.acceptance = head.label.acceptance
        self._passes = MedusaPasses(head, context)
        self._accuracy = head.accuracy.tolist()
        self._feature: Rows | None = None  # that the last token of the text was drawn from
        self._found: list[Follows] = []  # in this cycle, by depth

    @property
    def sequence(self) -> MedusaPasses:
        """Its passes, for measuring what they cost."""
        return self._passes

    def lacks(self, prompt: Sequence[int]) -> int:
        """The last row, if there is one."""
        return min(1, len(prompt) - 1)

    def begin(
        self,
        prompt: Sequence[int],
        progress: PrefillProgress | None = None,
        *,
        features: Rows | None = None,
    ) -> None:
        """Only the last feature counts."""
        self._keep(features)

    def able(self, reader: Reader, nodes: int) -> int:
        """None where no feature is known yet, or every token that it has is forbidden."""
        known = self._feature is not None and reader.pipeline.allows_any(self._ids)
        return nodes if known else 0

    def expand(self, paths: Sequence[Path], reader: Reader) -> list[Follows]:
        """See `Passes`; `follows` has the rest of what the pass found."""
        assert self._feature is not None
        rows = self._passes.run(self._feature)
        self._found = [
            list(zip(reader.ranked(row, len(chances), self._ids), chances, strict=False))
            for row, chances in zip(rows, self._accuracy, strict=True)
        ]
        return [self.follows(path) for path in paths]

    def follows(self, path: Path) -> Follows:
        """What the head of that depth holds for likeliest, once the heads ran in this cycle."""
        return self._found[len(path)] if len(path) < len(self._found) else ()

    def commit(self, tokens: Sequence[int], scored: Scored) -> None:
        """The feature that the last of `tokens` was drawn from is the one to go on from."""
        self._keep(scored.features)

    def forget(self) -> None:
        """It has learnt nothing."""

    def close(self) -> None:
        self._context.close()
        self.model.close()

    def _keep(self, features: Rows | None) -> None:
        self._found = []
        self._feature = None if features is None or not len(features) else features[-1].copy()
