"""What ends an answer: strings, control tokens, and the model's own end-of-generation tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from spec_cpu.llama.vocab import Vocab
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.text.streaming import TextStream


class Ending:
    """How one answer ends.

    Attributes:
        tokens: the tokens that end it by themselves.
    """

    def __init__(self, vocab: Vocab, stops: Sequence[str], *, ignore_eos: bool) -> None:
        """An answer ends at `stops`, and unless `ignore_eos` at the model's own end tokens.

        Args:
            stops: they may spell control tokens, which have no text otherwise.
        """
        self._vocab = vocab
        self._stops = stops
        self._marks = vocab.controls_in(stops)
        self.tokens: Collection[int] = frozenset() if ignore_eos else vocab.end_tokens
        self._forbidden = vocab.end_tokens - self._marks.keys() if ignore_eos else frozenset()

    def stream(self) -> TextStream:
        """What makes text of the answer's tokens, up to a stop."""
        return TextStream(self._vocab, self._stops, self._marks)

    def out_of_reach(self, sampling: SamplingParams) -> Iterator[str]:
        """A notice for each control token that `sampling` forbids, so that no answer ends there."""
        for token, name in self._marks.items():
            if sampling.logit_bias.get(token) == -np.inf:
                yield f"no answer can end at {name}: a bias of -inf forbids token {token}"

    def restrict(self, sampling: SamplingParams) -> SamplingParams:
        """`sampling` without the tokens that would end an answer that is to go on."""
        if not self._forbidden:
            return sampling
        forbidden = dict.fromkeys(self._forbidden, -np.inf)
        return replace(sampling, logit_bias={**sampling.logit_bias, **forbidden})
