"""llama-cpp-python's own `Llama`, to measure against."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from time import perf_counter

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from spec_cpu.errors import ModelError
from spec_cpu.llama.params import safe_defaults


class HighLevel:
    """A model in `llama_cpp.Llama`, which decodes plainly or with prompt lookup."""

    def __init__(
        self, path: Path, *, ctx: int, threads: int, temperature: float, lookup: int = 0
    ) -> None:
        """Load the model.

        Args:
            lookup: tokens that prompt lookup drafts at most; 0: none.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._temperature = temperature
        draft = LlamaPromptLookupDecoding(num_pred_tokens=lookup) if lookup else None
        try:
            with safe_defaults():
                self._llama = llama_cpp.Llama(
                    str(path),
                    n_ctx=ctx,
                    n_threads=threads,
                    n_threads_batch=threads,
                    draft_model=draft,
                    verbose=False,
                )
        except ValueError as error:
            raise ModelError(f"llama-cpp-python cannot load {path}: {error}") from None

    def close(self) -> None:
        self._llama.close()

    def decode(
        self, prompt: Sequence[int], max_tokens: int, seed: int, end_tokens: Container[int]
    ) -> list[float]:
        """When each token came, in seconds, until one of `end_tokens` or the context is full."""
        most = min(max_tokens, self._llama.n_ctx() - len(prompt))
        self._llama.set_seed(seed)
        times: list[float] = []
        for token in self._llama.generate(prompt, temp=self._temperature):
            times.append(perf_counter())
            if len(times) >= most or token in end_tokens:
                break
        return times
