"""The rejection rules: which drafted tokens stay, and the token that follows them.

Pure functions without a model. `p[0]` is the target's distribution after the text and `p[i + 1]`
after node i of the tree, so in a chain after the first i + 1 tokens; `q[i]` is the one that node i
was drawn from. Rules that stop early read only the p they need, so `p` may be computed lazily.
Every rule gives text distributed as the target's, for any q; only `verify_typical` does not.

The rules for a drawn chain take (tokens, p, q, rng), those for a tree (tree, p, rng). `RULES` are
those that a person may choose from, for whatever is drafted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu import defaults
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.sampling.pipeline import Distribution

ChainRule = Callable[
    [Sequence[int], Sequence[Distribution], Sequence[Distribution], np.random.Generator], "Verdict"
]
TreeRule = Callable[[TokenTree, Sequence[Distribution], np.random.Generator], "Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The drafted tokens that stay, and the one that follows them.

    Attributes:
        path: the accepted nodes, from the top; of a chain the first few: a range.
        token: the bonus if the path ends at a leaf, else a correction.
    """

    path: Sequence[int]
    token: int

    @property
    def accepted(self) -> int:
        """How many stay."""
        return len(self.path)


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
            return Verdict(range(i), _residual(p[i], q[i], 1.0).sample(rng))
    return Verdict(range(len(tokens)), p[len(tokens)].sample(rng))


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
        return Verdict(range(k), p[k].sample(rng))
    return Verdict(range(accepted), _residual(p[accepted], q[accepted], accepted_ratio).sample(rng))


def _pass_chance(p: Distribution, q: Distribution, ratio: float) -> float:
    """h_i: the chance that a prefix passes by itself, given that no longer one does."""
    excess = float(p.excess(q, ratio).sum())
    rest = excess + 1.0 - ratio
    # 0 / 0: p = q and a sure prefix, which the next token will pass in any case.
    return excess / rest if rest > 0.0 else 1.0


def verify_chosen(tree: TokenTree, p: Sequence[Distribution], rng: np.random.Generator) -> Verdict:
    """Tokens that were chosen, not drawn (q is a point mass): draw y ~ p, descend to the child y.

    On a chain the same as `verify_tokens` with a point mass for q, with one draw less: accepting
    with p(x) and replacing from p without x. Siblings must differ for any but the first to count.
    """
    return _descend(tree, lambda row: p[row].sample(rng))


def verify_greedy(tree: TokenTree, argmax: Callable[[int], int]) -> Verdict:
    """Temperature 0, where every rule collapses to "equal to the target's argmax".

    Args:
        argmax: the target's likeliest token by the p of this index; asked only along the path.
    """
    return _descend(tree, argmax)


def _descend(tree: TokenTree, choose: Callable[[int], int]) -> Verdict:
    path: list[int] = []
    node: int | None = ROOT
    while node is not None:
        token = choose(node + 1)
        node = tree.child(node, token)
        if node is not None:
            path.append(node)
    return Verdict(path, token)


def verify_typical(tree: TokenTree, p: Sequence[Distribution], rng: np.random.Generator) -> Verdict:
    """Every token stays that is typical of p, however it was drafted; the longest path does.

    NOT exact: a likely enough token that a source prefers is written more often than p says. x is
    typical if p(x) >= min(epsilon, delta exp(-H(p))): the surer the target is, the likelier x must
    be. Of paths equally long the first stays, and the token after it is drawn from p. Hewitt et al.
    2022, "Truncation Sampling as Language Model Desmoothing"; Cai et al. 2024, "Medusa".
    """
    best, depths = ROOT, {ROOT: 0}
    floors: dict[int, float] = {}
    for node, parent in enumerate(tree.parents):
        if parent not in depths:
            continue
        if parent not in floors:
            floors[parent] = typical_floor(p[parent + 1])
        if p[parent + 1].prob(tree.tokens[node]) >= floors[parent]:
            depths[node] = depths[parent] + 1
            best = node if depths[node] > depths[best] else best
    return Verdict(tree.path(best), p[best + 1].sample(rng))


def typical_floor(
    p: Distribution,
    epsilon: float = defaults.TYPICAL_EPSILON,
    delta: float = defaults.TYPICAL_DELTA,
) -> float:
    """The least probability that is typical of `p`: min(epsilon, delta exp(-H(p))), H in nats."""
    chances = p.p[p.p > 0.0]
    entropy = -float((chances * np.log(chances)).sum())
    return min(epsilon, delta * float(np.exp(-entropy)))


def acceptance(tree: TokenTree, node: int, p: Distribution) -> float:
    """The chance that a child of `node` is accepted, over the draws that the rule makes.

    Of tokens that were chosen the sum of p, of one that was drawn sum min(p, q); 0 of a leaf.
    """
    children = tree.children(node)
    if tree.q is None:
        return sum(p.prob(token) for token in {tree.tokens[child] for child in children})
    return sum(p.overlap(tree.q[child]) for child in children)


def _residual(p: Distribution, q: Distribution, scale: float) -> Distribution:
    """norm((scale p - q)+)."""
    excess = p.excess(q, scale)
    # The excess can only vanish through rounding, where p and q agree: then p is right.
    return p.reweighted(excess) if excess.any() else p


def _exactly(chain: ChainRule) -> TreeRule:
    """`chain` for tokens that were drawn, and for those that were chosen what is exact for them."""

    def verify(tree: TokenTree, p: Sequence[Distribution], rng: np.random.Generator) -> Verdict:
        if tree.q is None:
            return verify_chosen(tree, p, rng)
        return chain(tree.tokens, p, tree.q, rng)

    return verify


@dataclass(frozen=True, slots=True)
class Rule:
    """How drafts are verified above temperature 0.

    Attributes:
        exact: is the text distributed as the target's?
    """

    verify: TreeRule
    exact: bool


CHAIN_RULES: dict[str, ChainRule] = {"block": verify_block, "token": verify_tokens}
"""The exact rules for a drawn chain."""

RULES: dict[str, Rule] = {
    **{name: Rule(_exactly(chain), exact=True) for name, chain in CHAIN_RULES.items()},
    "typical": Rule(verify_typical, exact=False),
}
"""By their names."""
