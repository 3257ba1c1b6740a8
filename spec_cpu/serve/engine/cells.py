"""The cache of keys and values that all conversations share."""

from __future__ import annotations

from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context
from spec_cpu.llama.sequence import KVSequence

_TIDY = 1024  # cells that are of no use to anybody: what is fewer is left


class Cells:
    """One context for many texts, with sequences for each and its trees.

    Cells are taken in order, and those of what is forgotten are left alone, so that each text has
    its own in order: sums over them are those of a text that is alone, to the bit. Once they run
    out, or most are of no use, what is needed is moved together.

    Attributes:
        sequences: one for each text.
    """

    def __init__(self, context: Context, texts: int, paths: int) -> None:
        """For `texts` texts, each with trees of up to `paths` paths."""
        self.context = context
        self.sequences = [
            KVSequence(context, first, range(first + 1, first + paths))
            for first in range(0, texts * paths, paths)
        ]

    def make_room(self, n: int) -> None:
        """See to it that a pass over `n` tokens finds cells.

        Raises:
            ContextError: all are needed.
        """
        used = sum(map(len, self.sequences))
        taken, all_of_them = self.context.taken, self.context.n_ctx
        if taken + n > all_of_them or taken - used > max(_TIDY, used):
            self._move_together()
        if self.context.taken + n > all_of_them:
            raise ContextError(
                f"{len(self.sequences)} conversations have {used:,} tokens, and the cache holds "
                f"{all_of_them:,}: allow fewer `slots`, or raise `ctx`"
            )

    def _move_together(self) -> None:
        held = [(one, one.state(), list(one.tokens)) for one in self.sequences if len(one)]
        self.context.clear()
        for sequence, state, tokens in held:
            sequence.set_state(state, tokens)
