"""What a head is worth: acceptance on held-out prompts through the engine, and what that brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from spec_cpu import defaults
from spec_cpu.answer.stats import Stats
from spec_cpu.costs import theory
from spec_cpu.costs.plan import best_chain, tree_speedup
from spec_cpu.errors import ModelError, UsageError
from spec_cpu.llama.model import Model
from spec_cpu.loading import load
from spec_cpu.progress import Progress
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.session import Session
from spec_cpu.train.script import ASSISTANT, Template
from spec_cpu.train.shards import ShardStore

TEMPERATURES = (0.0, defaults.TEMPERATURE)
_DEPTH = 5
PROMPTS, TOKENS = 16, 64  # and tokens of each answer


@dataclass(frozen=True, slots=True)
class Measured:
    """What a head is worth at one temperature.

    Attributes:
        alpha: by depth: how often a drafted token was accepted if those before it were.
        tokens: expected a cycle, the last one included: of a chain as long as `alpha`; of Medusa's
            trees what they brought.
        k: that pays best here; of trees the nodes that they had. 0: none pays.
        speedup: predicted with that k.
    """

    temperature: float
    alpha: list[float]
    tokens: float
    k: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a head is worth on this machine.

    Attributes:
        prompts: how many were answered at each temperature.
        notices: what a person should know.
    """

    prompts: int
    measured: list[Measured]
    notices: list[str]


def evaluate(
    target: Path,
    head: Path,
    held_out: ShardStore,
    *,
    threads: int | None = None,
    kernels: str = defaults.KERNELS,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Answer held-out prompts with `head` drafting, greedily and at temperature 0.8.

    Args:
        held_out: whose first user turns are asked.
        seconds: no further prompt is begun after these, at each temperature.

    Raises:
        UsageError: no such head, or no held-out text.
        ModelError: it is none for this target, or damaged.
    """
    measured: list[Measured] = []
    notices: dict[str, None] = {}
    asked = 0
    for temperature in TEMPERATURES:
        with load(
            target,
            head,
            k=_DEPTH,
            shape="chain",
            rule="token",  # accepts a token with its own alpha; the block rule more often
            sampling=SamplingParams(temperature=temperature),
            threads=threads,
            kernels=kernels,
            seed=seed,
            progress=progress,
        ) as session:
            if not session.sources:
                raise ModelError(session.notices[-1])
            prompts = held_out_prompts(session.target, held_out)[:PROMPTS]
            asked, stats = _answer(session, prompts, seconds, progress)
            notices.update(dict.fromkeys(session.notices))
            measured.append(_measured(session, temperature, stats, progress))
    return Evaluation(asked, measured, list(notices))


def held_out_prompts(target: Model, held_out: ShardStore) -> list[str]:
    """The first user turns of the conversations of a shard, each once.

    Raises:
        UsageError: there is no such shard, or no turn in it.
    """
    shard, template = held_out.read(0), Template.of(target)
    begin, after = len(template.opening), len(template.to_assistant)
    turns: dict[str, None] = {}
    for tokens, roles in zip(shard.tokens, shard.roles, strict=True):
        said = np.flatnonzero(roles == ASSISTANT)
        end = int(said[0]) - after if len(said) else begin
        text = b"".join(target.vocab.piece(int(token)) for token in tokens[begin:end])
        turns[text.decode("utf-8", "replace").strip()] = None
    turns.pop("", None)
    if not turns:
        raise UsageError(f"{held_out.folder} has no user turns to ask: generate it again")
    return list(turns)


def _answer(
    session: Session, prompts: Sequence[str], seconds: float | None, progress: Progress | None
) -> tuple[int, Stats]:
    stats, start = Stats(), perf_counter()
    for n, prompt in enumerate(prompts):
        if n and seconds is not None and perf_counter() - start > seconds:
            return n, stats
        if progress is not None:
            progress("evaluating", n, len(prompts))
        session.reset()
        for _ in session.generate(prompt, max_tokens=TOKENS):
            pass
        stats.merge(session.stats)
    return len(prompts), stats


def _measured(
    session: Session, temperature: float, stats: Stats, progress: Progress | None
) -> Measured:
    alpha = stats.alpha_by_position
    width = _DEPTH + 1
    depth = max(1, min(defaults.PLAN_DEPTH, session.n_ctx - width - 1))
    costs = session.calibrate(width, depth=depth, progress=progress)
    if session.shape == "tree":  # Medusa's: there is no other way to draft with it
        tokens = stats.tokens_per_cycle or 1.0
        speedup = tree_speedup(costs, _DEPTH, tokens)
        pays = speedup > 1.0
        return Measured(temperature, alpha, tokens, _DEPTH * pays, speedup if pays else 1.0)
    k, speedup = best_chain(costs, alpha)
    return Measured(temperature, alpha, float(theory.chain_tokens(alpha)[-1]), k, speedup)
