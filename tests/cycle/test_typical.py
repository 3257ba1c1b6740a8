"""The rule `typical`: what it keeps, and that it is not exact and says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny
import tiny_medusa
from hypothesis import given
from hypothesis import strategies as st

import spec_cpu
from spec_cpu.cycle.verify import RULES, typical_floor, verify_typical
from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.sampling.pipeline import Distribution, SamplingParams, point_mass

N_VOCAB = 5


@st.composite
def trees(draw: st.DrawFn) -> tuple[TokenTree, list[Distribution]]:
    n = draw(st.integers(0, 8))
    parents = [draw(st.integers(ROOT, node - 1)) for node in range(n)]
    tokens = draw(st.lists(st.integers(0, N_VOCAB - 1), min_size=n, max_size=n))
    weights = st.lists(st.integers(0, 9), min_size=N_VOCAB, max_size=N_VOCAB).filter(any)
    rows = [np.array(draw(weights), np.float64) for _ in range(n + 1)]
    return TokenTree(tokens, parents=parents), [Distribution(None, r / r.sum()) for r in rows]


def is_typical(p: Distribution, token: int) -> bool:
    entropy = -sum(x * np.log(x) for x in p.p if x > 0)
    return bool(p.p[token] >= min(0.3, 0.3**0.5 * np.exp(-entropy)) - 1e-12)


@given(trees())
def test_the_longest_path_of_typical_tokens_stays(
    drawn: tuple[TokenTree, list[Distribution]],
) -> None:
    tree, p = drawn

    def stays(node: int) -> bool:
        path = tree.path(node)
        return all(is_typical(p[tree.parents[i] + 1], tree.tokens[i]) for i in path)

    kept = [node for node in range(len(tree)) if stays(node)]
    depth = max((len(tree.path(node)) for node in kept), default=0)
    best = next((node for node in kept if len(tree.path(node)) == depth), ROOT)
    verdict = verify_typical(tree, p, np.random.default_rng(0))
    assert verdict.path == tree.path(best)
    assert p[best + 1].p[verdict.token] > 0


@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_floor_falls_as_the_target_grows_unsure(n: int) -> None:
    even = Distribution(None, np.full(n, 1 / n))
    assert typical_floor(even) == pytest.approx(min(0.3, 0.3**0.5 / n))
    assert typical_floor(even, epsilon=1.0, delta=1.0) == pytest.approx(1 / n)
    padded = Distribution(None, np.append(even.p, 0.0))
    assert typical_floor(padded) == pytest.approx(typical_floor(even))


@pytest.mark.parametrize("drawn", [False, True])
def test_it_is_not_exact(drawn: bool) -> None:
    """A drafter that always says the same word gets it through; the exact rules see to that."""
    p = [Distribution(None, np.array([0.5, 0.3, 0.2]))] * 2
    wrong: Sequence[Distribution] | None = [point_mass(0)] if drawn else None
    rng = np.random.default_rng(0)
    share = {}
    for name, rule in RULES.items():
        tree = TokenTree([0], None if wrong is None else list(wrong), [1.0])
        first = [rule.verify(tree, p, rng).accepted for _ in range(4000)]
        share[name] = sum(first) / len(first)
    assert share.pop("typical") == 1.0
    assert all(value == pytest.approx(0.5, abs=0.04) for value in share.values())
    assert {name for name, rule in RULES.items() if not rule.exact} == {"typical"}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_session_says_whether_it_is_exact(tmp_path: Path, temperature: float) -> None:
    from spec_cpu_cli.report import as_json, summary

    target = tiny.write_llama(tmp_path / "t.gguf", n_vocab=320, n_ctx=512, scale=1)
    heads = tiny_medusa.write_heads(tmp_path / "h.gguf", target)
    sampling = SamplingParams(temperature=temperature)
    accepted, texts = {}, {}
    for rule in ("block", "typical"):
        with spec_cpu.load(
            target, heads, k=6, ctx=256, seed=0, rule=rule, sampling=sampling
        ) as session:
            texts[rule] = "".join(step.text for step in session.generate("one", max_tokens=60))
            accepted[rule] = session.stats.accepted
            exact = session.exact
            assert as_json(session, "")["exact"] is exact
            lines = "\n".join(summary(session.stats, None, exact=exact))
            assert ("Not exact" in lines) is not exact
            assert exact is (rule == "block" or temperature == 0)
    assert temperature or texts["block"] == texts["typical"]
    assert accepted["typical"] >= accepted["block"]
