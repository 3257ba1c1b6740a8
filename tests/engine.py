"""Cycles through the real engine, on tiny random models whose distributions can be enumerated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from scipy import stats

from spec_cpu.cycle.decode import Cycle, Text, cycles
from spec_cpu.cycle.drafting import Decides, Drafting
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.prefill import read_prompt
from spec_cpu.cycle.verify import RULES
from spec_cpu.draft.base import Source
from spec_cpu.draft.passes.model import ModelSource
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

N_VOCAB = 8
PROMPT = [tiny.BOS, 4, 5, 3, 6]
SURE = 1e-4

PIPELINES = {
    "plain": SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0),
    "defaults": SamplingParams(),
    "penalties": SamplingParams(
        temperature=1.2, top_k=6, min_p=0.01, repeat_penalty=1.6, frequency_penalty=0.5
    ),
}

FAMILIES = {
    "llama": lambda path: tiny.write_llama(path, n_vocab=32, n_layer=2, scale=3),
    "llama Q4_0": lambda path: tiny.write_llama(path, n_vocab=32, n_layer=2, scale=3, dtype="Q4_0"),
    "sliding window": lambda path: tiny.write_gemma3_swa(path, n_vocab=32, scale=3, window=16),
}


class CutShort(Pinned):
    """Ends a block where the draft is not sure of the next token, which depends on those before."""

    def worth_another(self, drafted: int, reach: float, sure: float | None) -> bool:
        return sure is None or sure > 0.3


@contextmanager
def opened(target: Path, draft: Path, n_ctx: int = 256) -> Iterator[tuple[KVSequence, ModelSource]]:
    with Model(target) as model, Context(model, n_ctx=n_ctx, threads=1) as context:
        small = Model(draft)
        drafter = ModelSource(small, Context(small, n_ctx=n_ctx, threads=1), n_vocab=model.vocab.n)
        try:
            yield KVSequence(context), drafter
        finally:
            drafter.close()


def start(
    target: KVSequence,
    drafter: Source | None,
    prompt: list[int],
    *,
    k: int,
    params: SamplingParams,
    rng: np.random.Generator | None = None,
    max_tokens: int = 8,
    rule: str = "block",
    policy: Decides | None = None,
) -> Iterator[Cycle]:
    """The cycles that follow `prompt`, which is read at once."""
    read_prompt(target, prompt, [drafter] if drafter else [])
    drafting = Drafting([drafter] if drafter else [], policy or Pinned(k))
    return cycles(
        to_continue(
            target, drafting, prompt, params=params, rng=rng, max_tokens=max_tokens, rule=rule
        )
    )


def to_continue(
    target: KVSequence,
    drafting: Drafting,
    prompt: Sequence[int],
    *,
    params: SamplingParams,
    rng: np.random.Generator | None = None,
    max_tokens: int = 8,
    rule: str = "block",
) -> Text:
    """`prompt`, all but the last token of which was read, to be continued by `max_tokens`."""
    end = min(len(prompt) + max_tokens, target.context.n_ctx)
    draws = rng or np.random.default_rng(0)
    return Text([*prompt], target, drafting, Pipeline(params), RULES[rule], draws, end)


def run(
    target: KVSequence, drafter: ModelSource | None, prompt: list[int], **how: Any
) -> list[Cycle]:
    """All cycles; arguments as for `start`."""
    return list(start(target, drafter, prompt, **how))


def text(run_cycles: list[Cycle]) -> list[int]:
    return [token for cycle in run_cycles for token in cycle.tokens]


def exact_pairs(path: Path, params: SamplingParams) -> dict[tuple[int, int], float]:
    """The probability of every next two tokens, from single steps of plain decoding."""
    pipeline = Pipeline(params)
    with Model(path) as model, Context(model, n_ctx=64, threads=1) as context:
        sequence = KVSequence(context)

        def after(tokens: list[int]) -> np.ndarray:
            sequence.reuse(tokens[:-1])
            sequence.prefill(tokens[len(sequence) : -1])
            p = pipeline.distribution(sequence.score(tokens[-1:])[0], tokens)
            return np.array([p.prob(token) for token in range(N_VOCAB)])

        first = after(PROMPT)
        second = [after([*PROMPT, token]) for token in range(N_VOCAB)]
    return {
        (a, b): float(first[a] * second[a][b]) for a, b in product(range(N_VOCAB), range(N_VOCAB))
    }


def assert_exact(found: Counter[tuple[int, ...]], path: Path, params: SamplingParams) -> None:
    """Next two tokens, as often as each pair was found, follow the target's distribution."""
    exact, samples = exact_pairs(path, params), found.total()
    assert {pair for pair in found if exact[pair] == 0} == set()
    common = [pair for pair, chance in exact.items() if chance * samples >= 8]
    observed = [found[pair] for pair in common]
    expected = np.array([exact[pair] for pair in common])
    expected *= sum(observed) / expected.sum()
    assert stats.chisquare(observed, expected).pvalue > SURE


def fresh_logits(path: Path, tokens: list[int]) -> Rows:
    with Model(path) as model, Context(model, n_ctx=256, threads=1) as context:
        sequence = KVSequence(context)
        for token in tokens[:-1]:
            sequence.score([token])
        return sequence.score(tokens[-1:]).copy()
