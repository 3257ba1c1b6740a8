"""Made-up languages, a distribution for every text; and whether what was written follows one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
from scipy import stats

from spec_cpu.sampling.pipeline import Distribution

N = 3  # tokens whose joint distribution is compared
SAMPLES = 4_000
SURE = 1e-4  # with fixed seeds a true law passes or fails for good

Text = tuple[int, ...]
Language = Callable[[Text], np.ndarray]


def distribution(p: np.ndarray) -> Distribution:
    return Distribution(None, np.asarray(p, np.float64))


def random_language(n_vocab: int, seed: int, *, zeros: float = 0.0) -> Language:
    """A distribution for every text, with a share of zeros (never all)."""
    known: dict[Text, np.ndarray] = {}

    def language(text: Text) -> np.ndarray:
        if text not in known:
            rng = np.random.default_rng([seed, len(text), *text])
            p = rng.dirichlet(np.full(n_vocab, 0.7))
            cut = rng.random(n_vocab) < zeros
            cut[rng.integers(n_vocab)] = False
            p[cut] = 0
            known[text] = p / p.sum()
        return known[text]

    return language


def p_value(p: Language, n_vocab: int, drawn: Counter[Text]) -> float:
    """Chi-square of counted texts against their exact probabilities; rare texts are pooled."""
    expected: dict[Text, float] = {}
    for text in product(range(n_vocab), repeat=N):
        chance = np.prod([p(text[:i])[text[i]] for i in range(N)])
        expected[text] = float(chance) * drawn.total()
    impossible = [text for text in drawn if expected[text] == 0]
    assert not impossible, f"texts that the target never writes: {impossible[:3]}"
    common = [text for text in expected if expected[text] >= 8]
    observed = [drawn[text] for text in common]
    wanted = [expected[text] for text in common]
    rest = drawn.total() - sum(wanted)
    if rest >= 8:
        observed.append(drawn.total() - sum(observed))
        wanted.append(rest)
    wanted = [w * sum(observed) / sum(wanted) for w in wanted]
    return float(stats.chisquare(observed, wanted).pvalue) if len(observed) > 1 else 1.0
