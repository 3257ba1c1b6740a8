"""The rejection rules: which drafted tokens stay, and the token that follows them.

Pure functions of (tokens, p, q, rng) without a model. For tokens x_1 .. x_k: `p[i]` is the target's
distribution after the first i of them (k + 1 in all), `q[i]` the one that x_{i+1} was drawn from (k
in all). Rules that stop early read only the p they need, so `p` may be computed lazily. Every rule
gives text distributed as the target's, for any q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu.sampling import Distribution

Rule = Callable[
    [Sequence[int], Sequence[Distribution], Sequence[Distribution], np.random.Generator], "Verdict"
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`accepted` drafted tokens stay; `token` follows: the bonus if all stay, else a correction."""

    accepted: int
    token: int


def verify_tokens(
    tokens: Sequence[int],
    p: Sequence[Distribution],
    q: Sequence[Distribution],
    rng: np.random.Generator,
) -> Verdict:
    """Token by token: accept x with probability min(1, p(x) / q(x)).

    The first rejected token is replaced by a draw from norm((p - q)+). Leviathan et al. 2023,
    algorithm 1; Chen et al. 2023, algorithm 2.
    """
    for i, token in enumerate(tokens):
        if rng.random() * q[i].prob(token) >= p[i].prob(token):
            return Verdict(i, _draw_residual(p[i], q[i], 1.0, rng))
    return Verdict(len(tokens), p[len(tokens)].sample(rng))


def verify_block(
    tokens: Sequence[int],
    p: Sequence[Distribution],
    q: Sequence[Distribution],
    rng: np.random.Generator,
) -> Verdict:
    """The whole block at once: keeps the longest prefix that passes, accepting at least as many.

    A prefix passes by its joint ratio r_i = min(1, r_{i-1} p(x_i) / q(x_i)), so that a likely token
    makes up for an unlikely one before it. Sun et al. 2024, "Block Verification Accelerates
    Speculative Decoding", algorithm 2.
    """
    k = len(tokens)
    ratio, accepted, accepted_ratio = 1.0, 0, 1.0
    for i, token in enumerate(tokens, start=1):
        ratio = min(1.0, ratio * p[i - 1].prob(token) / q[i - 1].prob(token))
        if ratio == 0.0:  # nothing after this token can pass either
            break
        if rng.random() < (ratio if i == k else _pass_chance(p[i], q[i], ratio)):
            accepted, accepted_ratio = i, ratio
    if accepted == k:
        return Verdict(k, p[k].sample(rng))
    return Verdict(accepted, _draw_residual(p[accepted], q[accepted], accepted_ratio, rng))


def _pass_chance(p: Distribution, q: Distribution, ratio: float) -> float:
    """h_i: the chance that a prefix passes by itself, given that no longer one does."""
    excess = float(p.excess(q, ratio).sum())
    rest = excess + 1.0 - ratio
    # 0 / 0: p = q and a sure prefix, which the next token will pass in any case.
    return excess / rest if rest > 0.0 else 1.0


def verify_chosen(
    tokens: Sequence[int], p: Sequence[Distribution], rng: np.random.Generator
) -> Verdict:
    """Tokens that were chosen, not drawn (q is a point mass): draw y from p, go on while y = x.

    The same as `verify_tokens` with a point mass for q, with one draw less: accepting with p(x)
    and replacing from p without x.
    """
    for i, token in enumerate(tokens):
        drawn = p[i].sample(rng)
        if drawn != token:
            return Verdict(i, drawn)
    return Verdict(len(tokens), p[len(tokens)].sample(rng))


def verify_greedy(tokens: Sequence[int], argmax: Callable[[int], int]) -> Verdict:
    """Temperature 0, where every rule collapses to "equal to the target's argmax".

    Args:
        argmax: the target's likeliest token after the first i drafted ones; asked up to the first
            that differs.
    """
    for i, token in enumerate(tokens):
        best = argmax(i)
        if best != token:
            return Verdict(i, best)
    return Verdict(len(tokens), argmax(len(tokens)))


def _draw_residual(p: Distribution, q: Distribution, scale: float, rng: np.random.Generator) -> int:
    """Draw from norm((scale p - q)+)."""
    excess = p.excess(q, scale)
    # The excess can only vanish through rounding, where p and q agree: then p is right.
    return (p.reweighted(excess) if excess.any() else p).sample(rng)


RULES: dict[str, Rule] = {"block": verify_block, "token": verify_tokens}
"""The rules for a sampled chain, by the names that `--rule` takes."""
