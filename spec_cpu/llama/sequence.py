"""One sequence of a context, and which tokens of it are in the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spec_cpu.llama.context import Context, Rows

PrefillProgress = Callable[[int, int], None]
"""Told (tokens evaluated, tokens in all) after each batch of a prompt."""


class KVSequence:
    """A sequence whose first `len(tokens)` tokens have their keys and values in the cache.

    `tokens` is what was fed, in order: position i holds token i.
    """

    def __init__(self, context: Context, seq_id: int = 0) -> None:
        self.context = context
        self.tokens: list[int] = []
        self._seq_id = seq_id

    def __len__(self) -> int:
        return len(self.tokens)

    def score(self, tokens: Sequence[int]) -> Rows:
        """Feed `tokens` in one pass and return the logits after each: (len(tokens), n_vocab).

        The rows are a view that lives until the context's next pass. Errors: `Context.decode`.
        """
        return self._feed(tokens, outputs=None)

    def prefill(self, tokens: Sequence[int], progress: PrefillProgress | None = None) -> None:
        """Feed `tokens` in batches, without logits. Errors: `Context.decode`.

        What was fed before `progress` raises stays in the cache and in `tokens`.
        """
        batch = self.context.n_batch
        for begin in range(0, len(tokens), batch):
            part = tokens[begin : begin + batch]
            self._feed(part, outputs=[False] * len(part))
            if progress is not None:
                progress(begin + len(part), len(tokens))

    def _feed(self, tokens: Sequence[int], outputs: Sequence[bool] | None) -> Rows:
        begin = len(self.tokens)
        positions = range(begin, begin + len(tokens))
        rows = self.context.decode(
            tokens, positions, [(self._seq_id,)] * len(tokens), outputs=outputs
        )
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
            Whether the memory can do that; nothing is changed where not.
        """
        if not self.context.shift(begin, end, seq_id=self._seq_id):
            return False
        del self.tokens[begin:end]
        return True
