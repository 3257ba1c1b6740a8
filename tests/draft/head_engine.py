"""The engine with a head that drafts from the target's hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from test_engine import PIPELINES

from spec_cpu.decode import Cycle, cycles
from spec_cpu.draft.base import Drafter
from spec_cpu.drafting import Drafting
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.pinned import Pinned
from spec_cpu.sampling import Pipeline, SamplingParams
from spec_cpu.schedule_base import Schedule
from spec_cpu.verify import RULES

GREEDY = SamplingParams(temperature=0)
BIASED = replace(PIPELINES["plain"], logit_bias={2: 0.5, 3: -np.inf, 5: 1.0})

Head = TypeVar("Head", bound=Drafter)


@contextmanager
def followed(
    target: Path, make: Callable[[], Head], *, n_ctx: int, paths: int
) -> Iterator[tuple[KVSequence, Head]]:
    """A target, and the drafter that `make` opens."""
    with (
        Model(target) as model,
        Context(model, n_ctx=n_ctx, n_seq=paths, threads=1, hidden=True) as context,
        closing(make()) as drafter,
    ):
        yield KVSequence(context, branches=range(1, paths)), drafter


def start(
    target: KVSequence,
    drafter: Drafter | None,
    prompt: list[int],
    *,
    params: SamplingParams,
    k: int,
    rng: np.random.Generator | None = None,
    max_tokens: int = 8,
    rule: str = "block",
    schedule: Schedule | None = None,
) -> Iterator[Cycle]:
    """The cycles that follow `prompt`, which is read at once."""
    known = target.reuse(prompt[:-1])
    known = target.reuse(prompt[: max(0, known - 1)])
    rows = target.prefill_hidden(prompt[known:-1], drafter.lacks(prompt) if drafter else 0)
    if drafter:
        drafter.begin(prompt, features=rows)
    return cycles(
        target,
        [Drafting(drafter, schedule or Pinned(k))] if drafter else [],
        prompt,
        pipeline=Pipeline(params),
        rule=RULES[rule],
        rng=rng or np.random.default_rng(0),
        max_tokens=max_tokens,
    )
