"""The rules are exact: laws by simulation over tiny vocabularies, where everything is enumerated.

The law: run whole cycles until at least N tokens are out, with a drafter that proposes from q and a
target p, both depending on the text before. The first N tokens are distributed as under p alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from languages import SAMPLES, SURE, Language, N, Text, distribution, p_value, random_language
from scipy import stats

from spec_cpu.cycle.verify import CHAIN_RULES, ChainRule, Verdict, verify_chosen
from spec_cpu.draft.tree import TokenTree
from spec_cpu.sampling.pipeline import Distribution, point_mass


def disjoint(language: Language) -> Language:
    """What has probability here has none there, wherever that is possible."""

    def other(text: Text) -> np.ndarray:
        free = (language(text) == 0).astype(float)
        return free / free.sum() if free.any() else np.roll(language(text), 1)

    return other


def mixed(one: Language, two: Language, share: float) -> Language:
    return lambda text: share * one(text) + (1 - share) * two(text)


def generate(
    p: Language, q: Language, k: int, rule: ChainRule, rng: np.random.Generator
) -> tuple[Text, int]:
    """The first N tokens of a text written in cycles, and how many drafts the first accepted."""
    text: Text = ()
    first = -1
    while len(text) < N:
        tokens: list[int] = []
        for _ in range(k):
            tokens.append(distribution(q((*text, *tokens))).sample(rng))
        verdict = rule(
            tokens,
            [distribution(p((*text, *tokens[:i]))) for i in range(k + 1)],
            [distribution(q((*text, *tokens[:i]))) for i in range(k)],
            rng,
        )
        first = verdict.accepted if first < 0 else first
        text = (*text, *tokens[: verdict.accepted], verdict.token)
    return text[:N], first


def simulate(p: Language, q: Language, k: int, rule: ChainRule, seed: int) -> Counter[Text]:
    rng = np.random.default_rng(seed)
    return Counter(generate(p, q, k, rule, rng)[0] for _ in range(SAMPLES))


def cases(n_vocab: int) -> dict[str, tuple[Language, Language]]:
    p = random_language(n_vocab, 1)
    holes = random_language(n_vocab, 2, zeros=0.5)
    return {
        "unrelated": (p, random_language(n_vocab, 3)),
        "close": (p, mixed(p, random_language(n_vocab, 4), 0.8)),
        "equal": (p, p),
        "p with zeros": (holes, random_language(n_vocab, 5)),
        "q with zeros": (p, random_language(n_vocab, 6, zeros=0.5)),
        "disjoint": (holes, disjoint(holes)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("n_vocab", [2, 4])
@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("case", list(cases(2)))
def test_text_is_distributed_as_the_targets(rule: str, case: str, n_vocab: int, k: int) -> None:
    p, q = cases(n_vocab)[case]
    drawn = simulate(p, q, k, CHAIN_RULES[rule], seed=n_vocab * 10 + k)
    assert p_value(p, n_vocab, drawn) > SURE


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_a_larger_vocabulary(rule: str) -> None:
    p, q = random_language(8, 7, zeros=0.3), random_language(8, 8, zeros=0.3)
    assert p_value(p, 8, simulate(p, q, 3, CHAIN_RULES[rule], seed=1)) > SURE


def chosen(q_argmax: Callable[[Text], int]) -> Language:
    """A deterministic drafter's q: a point mass on its choice."""

    def language(text: Text) -> np.ndarray:
        p = np.zeros(3)
        p[q_argmax(text)] = 1
        return p

    return language


def verify_chosen_as_rule(
    tokens: list[int], p: list[Distribution], _q: list[Distribution], rng: np.random.Generator
) -> Verdict:
    return verify_chosen(TokenTree(tokens), p, rng)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("rule", [verify_chosen_as_rule, *CHAIN_RULES.values()])
def test_chosen_tokens_are_exact_under_every_rule(rule: ChainRule, k: int) -> None:
    p = random_language(3, 9)
    q = chosen(lambda text: (sum(text) + len(text)) % 3)
    assert p_value(p, 3, simulate(p, q, k, rule, seed=k)) > SURE


def no_residual(
    tokens: list[int], p: list[Distribution], q: list[Distribution], rng: np.random.Generator
) -> Verdict:
    """A wrong rule: what replaces a rejected token comes from p, not from what q left of it."""
    verdict = CHAIN_RULES["token"](tokens, p, q, rng)
    return Verdict(verdict.path, p[verdict.accepted].sample(rng))


def wrong_scale(
    tokens: list[int], p: list[Distribution], q: list[Distribution], rng: np.random.Generator
) -> Verdict:
    """A wrong block rule: its residual forgets the joint ratio."""
    verdict = CHAIN_RULES["block"](tokens, p, q, rng)
    if verdict.accepted == len(tokens):
        return verdict
    excess = p[verdict.accepted].excess(q[verdict.accepted])
    left = p[verdict.accepted]
    return Verdict(verdict.path, (left.reweighted(excess) if excess.any() else left).sample(rng))


@pytest.mark.parametrize("rule", [no_residual, wrong_scale])
def test_the_test_has_the_power_to_see_a_wrong_residual(rule: ChainRule) -> None:
    # A first token that passes with 0.8, then a residual that the joint ratio changes.
    target = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
    draft = np.array([[0.0, 1.0, 0.0], [0.1, 0.2, 0.7]])
    p: Language = lambda text: target[len(text) % 2]  # noqa: E731
    drawn = simulate(p, lambda text: draft[len(text) % 2], 2, rule, seed=4)
    assert p_value(p, 3, drawn) < SURE


def test_the_papers_example() -> None:
    """Sun et al. 2024, section 2: 10/9 accepted by the token rule, 11/9 by the block rule."""
    target, draft = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    rng = np.random.default_rng(0)
    accepted = {
        name: np.mean(
            [generate(lambda _: target, lambda _: draft, 2, rule, rng)[1] for _ in range(30_000)]
        )
        for name, rule in CHAIN_RULES.items()
    }
    assert accepted["token"] == pytest.approx(10 / 9, abs=0.02)
    assert accepted["block"] == pytest.approx(11 / 9, abs=0.02)


@given(seed=st.integers(0, 10_000), n_vocab=st.integers(2, 8), k=st.integers(1, 4))
@settings(max_examples=40)
def test_the_block_rule_accepts_at_least_as_many(seed: int, n_vocab: int, k: int) -> None:
    """Exactly, not by sampling: expected accepted tokens, summed over every drafted block."""
    n_vocab, k = (n_vocab, min(k, 2)) if n_vocab > 4 else (n_vocab, k)
    p, q = random_language(n_vocab, seed), random_language(n_vocab, seed + 1)
    token = block = 0.0
    for length in range(1, k + 1):
        for text in product(range(n_vocab), repeat=length):
            ratios = [p(text[:i])[text[i]] / q(text[:i])[text[i]] for i in range(length)]
            drafted = np.prod([q(text[:i])[text[i]] for i in range(length)])
            joint = 1.0
            for ratio in ratios:
                joint = min(1.0, joint * ratio)
            token += drafted * np.prod(np.minimum(1.0, ratios))
            block += drafted * joint
    assert block >= token - 1e-9


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_equal_distributions_accept_everything(rule: str) -> None:
    p = random_language(4, 11)
    rng = np.random.default_rng(0)
    assert all(generate(p, p, 3, CHAIN_RULES[rule], rng)[1] == 3 for _ in range(500))


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_greedy_is_equality_with_the_argmax(rule: str) -> None:
    rng = np.random.default_rng(0)
    p = [point_mass(token) for token in (5, 7, 9)]
    for tokens, accepted, token in [([5, 7], 2, 9), ([5, 8], 1, 7), ([4, 7], 0, 5)]:
        q = [point_mass(token) for token in tokens]
        assert CHAIN_RULES[rule](tokens, p, q, rng) == Verdict(range(accepted), token)
        chosen = verify_chosen(TokenTree(tokens), p, rng)
        assert (chosen.accepted, chosen.token) == (accepted, token)


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_no_draft_is_a_plain_draw(rule: str) -> None:
    p = distribution(np.array([0.2, 0.5, 0.3]))
    rng = np.random.default_rng(0)
    counts = np.bincount([CHAIN_RULES[rule]([], [p], [], rng).token for _ in range(5_000)])
    assert stats.chisquare(counts, p.p * 5_000).pvalue > SURE


def test_p_is_asked_for_only_as_far_as_a_rule_reads() -> None:
    asked: list[int] = []

    class Lazy(list[Distribution]):
        def __getitem__(self, i: int) -> Distribution:  # type: ignore[override]
            asked.append(i)
            return super().__getitem__(i)

    p = Lazy(point_mass(token) for token in (1, 2, 3))
    verify_chosen(TokenTree([0, 2]), p, np.random.default_rng(0))
    assert asked == [0]
