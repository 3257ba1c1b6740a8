"""A chain of drafted tokens, each from the distribution that follows the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from spec_cpu.cycle.schedule_base import Schedule
from spec_cpu.draft.tree import TokenTree
from spec_cpu.sampling.logits import Ids, Logits
from spec_cpu.sampling.pipeline import Distribution, Pipeline


def draw_chain(
    logits: Logits,
    after: Callable[[int], Logits],
    history: Sequence[int],
    k: int,
    pipeline: Pipeline,
    rng: np.random.Generator,
    schedule: Schedule,
    *,
    ends: AbstractSet[int],
    tokens: Ids | None = None,
) -> TokenTree:
    """At most `k` tokens to follow `history`, cut after one that ends the text.

    They are drawn from the draft's own processed distribution q; at temperature 0 they are its
    likeliest ones. `schedule` is asked before each whether it is worth drafting.

    Args:
        logits: of the first.
        after: runs a draft step: the logits that follow a token, which follows those before it.
        ends: tokens that end a text.
        tokens: that logits are of, ascending. Default: all.

    Raises:
        LogitsError: the logits are not finite.
    """
    recent = pipeline.recent(history)
    tree = TokenTree(q=None if pipeline.params.greedy else [])
    reach = 1.0
    while True:
        q = None if tree.q is None else pipeline.distribution(logits, recent, tokens)
        confidence = _confidence(logits, q, pipeline) if schedule.by_confidence else 1.0
        # Asked before the token is drawn: see `worth_another`.
        if not schedule.worth_another(len(tree), reach, confidence):
            return tree
        token = pipeline.argmax(logits, recent, tokens) if q is None else q.sample(rng)
        tree.append(token, q, confidence)
        if len(tree) == k or token in ends:
            return tree
        reach *= schedule.acceptance(confidence)
        recent.append(token)
        logits = after(token)


def _confidence(logits: Logits, q: Distribution | None, pipeline: Pipeline) -> float:
    """The largest probability of the next token."""
    return pipeline.confidence(logits) if q is None else float(q.p.max())
