"""The engine with a head that drafts from the target's hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from engine import PIPELINES

from spec_cpu.draft.base import Source
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import SamplingParams

GREEDY = SamplingParams(temperature=0)
BIASED = replace(PIPELINES["plain"], logit_bias={2: 0.5, 3: -np.inf, 5: 1.0})

Head = TypeVar("Head", bound=Source)


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
