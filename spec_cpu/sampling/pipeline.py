"""From logits to the distribution a token is drawn from: llama.cpp's samplers, in its order.

Logit bias, penalties, top-k, top-p, min-p, temperature. The result is what exactness is measured
against: both p and q are what is left after the whole pipeline. It works on few candidates, because
on a vocabulary of 150 k tokens one full exp costs as much as the rest together.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from spec_cpu import defaults
from spec_cpu.arguments import REAL, WHOLE, Kind
from spec_cpu.errors import UsageError
from spec_cpu.sampling.logits import GAPS, Floats, Ids, Logits, NumpyRowOps, RowOps, finite_top

_SMALLEST, _LARGEST = 1e-4, 1e9  # of what logits in single precision bear


@dataclass(frozen=True, slots=True)
class Distribution:
    """A probability distribution over tokens.

    Attributes:
        ids: the tokens that may be drawn, ascending, shape (n,); None: every token, in order.
        p: their probabilities, float64, shape (n,), summing to 1.
    """

    ids: Ids | None
    p: Floats

    def prob(self, token: int) -> float:
        """The probability of `token`; 0 if it cannot be drawn."""
        if self.ids is None:
            return float(self.p[token]) if token < len(self.p) else 0.0
        i = int(self.ids.searchsorted(token))
        return float(self.p[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def probs_at(self, other: Distribution) -> Floats:
        """The probabilities here of the tokens of `other`, in its order, shape of `other.p`."""
        if self.ids is None:
            if other.ids is None:
                return _resized(self.p, len(other.p))
            return np.where(
                other.ids < len(self.p), self.p[np.minimum(other.ids, len(self.p) - 1)], 0.0
            )
        if other.ids is None:
            dense = np.zeros(max(len(other.p), int(self.ids[-1]) + 1))
            dense[self.ids] = self.p
            return dense[: len(other.p)]
        i = np.minimum(self.ids.searchsorted(other.ids), len(self.ids) - 1)
        return np.where(self.ids[i] == other.ids, self.p[i], 0.0)

    def sample(self, rng: np.random.Generator) -> int:
        """Draw a token."""
        if len(self.p) == 1 and self.ids is not None:
            return int(self.ids[0])
        if self.ids is None:
            mass = self.p.cumsum()
            i = int(mass.searchsorted(rng.random() * mass[-1], side="right"))
            return min(i, len(mass) - 1)
        # The same sums; for few tokens lists are quicker.
        sums = list(accumulate(self.p.tolist()))
        return int(self.ids[min(bisect_right(sums, rng.random() * sums[-1]), len(sums) - 1)])

    def overlap(self, other: Distribution) -> float:
        """sum min(p, q) = 1 - TV: the chance that a token drawn from q passes p."""
        return float(np.minimum(self.p, other.probs_at(self)).sum())

    def excess(self, other: Distribution, scale: float = 1.0) -> Floats:
        """(scale * p - q)+ over the tokens of this distribution, not normalised."""
        return np.maximum(scale * self.p - other.probs_at(self), 0.0)

    def reweighted(self, weights: Floats) -> Distribution:
        """The tokens with a positive weight, with probabilities in proportion to it."""
        keep = weights.nonzero()[0]
        p = weights[keep]
        return Distribution(keep if self.ids is None else self.ids[keep], p / p.sum())


_ONE = np.ones(1)


def point_mass(token: int) -> Distribution:
    """All probability on `token`."""
    return Distribution(np.array([token], np.intp), _ONE)


def _resized(p: Floats, n: int) -> Floats:
    return p[:n] if len(p) >= n else np.concatenate([p, np.zeros(n - len(p))])


_BIASES = Kind(
    "a dict of token ids and numbers",
    lambda value: (
        isinstance(value, Mapping)
        and all(map(WHOLE.accepts, value))
        and all(map(REAL.accepts, value.values()))
    ),
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling flags, with llama.cpp's defaults.

    Attributes:
        temperature: 0 is greedy.
        top_k: keep this many of the likeliest tokens; 0 keeps all.
        top_p: keep the likeliest tokens that together reach this probability; 1 keeps all.
        min_p: keep tokens of at least this share of the likeliest one's probability; 0 keeps all.
        repeat_penalty: divide positive logits (multiply negative ones) of recent tokens by this.
        frequency_penalty: subtract this for each time a token occurs among the recent ones.
        presence_penalty: subtract this once if it occurs there.
        penalty_last_n: how many tokens are recent; 0 turns penalties off, -1 means all.
        logit_bias: added to the logits of tokens; -inf forbids one.

    Raises:
        UsageError: a value out of range.
    """

    temperature: float = defaults.TEMPERATURE
    top_k: int = defaults.TOP_K
    top_p: float = defaults.TOP_P
    min_p: float = defaults.MIN_P
    repeat_penalty: float = defaults.REPEAT_PENALTY
    frequency_penalty: float = defaults.FREQUENCY_PENALTY
    presence_penalty: float = defaults.PRESENCE_PENALTY
    penalty_last_n: int = defaults.PENALTY_LAST_N
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_types()
        _require(
            self.temperature == 0 or _SMALLEST <= self.temperature < math.inf,
            "temperature",
            f"0, or a finite number from {_SMALLEST:g} up",
            self.temperature,
        )
        _require(self.top_k >= 0, "top_k", "0 (off) or more", self.top_k)
        _require(0 < self.top_p <= 1, "top_p", "above 0 and at most 1", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p", "from 0 to 1", self.min_p)
        for name in ("repeat_penalty", "frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            rule = f"from {-_LARGEST:g} to {_LARGEST:g}"
            _require(-_LARGEST <= value <= _LARGEST, name, rule, value)
        _require(self.repeat_penalty >= _SMALLEST, "repeat_penalty", "above 0", self.repeat_penalty)
        _require(self.penalty_last_n >= -1, "penalty_last_n", "-1 or more", self.penalty_last_n)
        for token, bias in self.logit_bias.items():
            _require(0 <= token < 2**31, "logit_bias", "for a token id of 0 or more", token)
            _require(
                abs(bias) <= _LARGEST or bias == -math.inf,
                "logit_bias",
                f"-inf, or from {-_LARGEST:g} to {_LARGEST:g}",
                bias,
            )

    def _check_types(self) -> None:
        for name in ("top_k", "penalty_last_n"):
            WHOLE.check(**{name: getattr(self, name)})
        for name in ("temperature", "top_p", "min_p"):
            REAL.check(**{name: getattr(self, name)})
        for name in ("repeat_penalty", "frequency_penalty", "presence_penalty"):
            REAL.check(**{name: getattr(self, name)})
        _BIASES.check(logit_bias=self.logit_bias)

    def check_tokens(self, n_vocab: int, model: str) -> None:
        """Raise UsageError where `logit_bias` has a token beyond the vocabulary of `model`."""
        beyond = [token for token in self.logit_bias if token >= n_vocab]
        if beyond:
            raise UsageError(
                f"`logit_bias` has no token {beyond[0]} to add to: the vocabulary of {model} goes "
                f"from 0 to {n_vocab - 1:,}"
            )

    @property
    def greedy(self) -> bool:
        """Is the likeliest token always taken?"""
        return self.temperature == 0

    @property
    def penalizes(self) -> bool:
        """Does what was written before change the distribution?"""
        off = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) == (1, 0, 0)
        return not off and self.penalty_last_n != 0


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise UsageError(f"`{name}` must be {rule}, not {value}")


class Pipeline:
    """The samplers of one setting: logits and history in, a distribution out. Holds no state.

    Attributes:
        penalizes: does what was written before change the distribution?
    """

    def __init__(self, params: SamplingParams, rows: RowOps | None = None) -> None:
        """With `rows` for what touches a whole row of logits; default: NumPy."""
        self.params = params
        self._rows = rows or NumpyRowOps()
        self.penalizes = params.penalizes
        self._log_min_p = math.log(params.min_p) if params.min_p > 0 else -math.inf
        self._bias_ids = np.array(list(params.logit_bias), np.intp)
        self._bias = np.array(list(params.logit_bias.values()), np.float32)
        self._forbidden = self._bias_ids[np.isneginf(self._bias)]
        self._adjusts = self.penalizes or len(self._bias) > 0

    def distribution(
        self, logits: Logits, history: Sequence[int], tokens: Ids | None = None
    ) -> Distribution:
        """What the next token is drawn from.

        Args:
            logits: float32, (n_vocab,), or of the shape of `tokens`; not changed.
            history: the tokens before this position, oldest first, for the penalties: all of
                them, or `recent` ones.
            tokens: those that the logits are of, ascending; all others have probability 0.
                Default: every token, in order.

        Raises:
            LogitsError: the logits are not finite: the file is damaged.
        """
        params = self.params
        if params.greedy:
            return point_mass(self.argmax(logits, history, tokens))
        if self._adjusts:
            logits = self._adjusted(logits, history, tokens)
        if 0 < params.top_k < len(logits):
            ids, p = self._rows.truncate(
                logits, params.top_k, params.top_p, self._log_min_p, params.temperature
            )
        elif params.top_p < 1:
            ids, p = self._of(logits, _top_p(logits, params.top_p, self._log_min_p))
        elif params.min_p > 0:
            ids, p = self._of(logits, self._rows.near(logits, -self._log_min_p))
        else:
            weights = np.exp((logits.astype(np.float64) - finite_top(logits)) / params.temperature)
            return Distribution(tokens, weights / weights.sum())
        return Distribution(ids if tokens is None else tokens[ids], p)

    def _of(self, logits: Logits, ids: Ids) -> tuple[Ids, Floats]:
        """The candidates `ids`, ascending, with what temperature makes of their logits."""
        chosen = logits[ids].astype(np.float64)
        weights = np.exp((chosen - chosen.max()) / self.params.temperature)
        return ids, weights / weights.sum()

    def recent(self, history: Sequence[int]) -> list[int]:
        """The end of `history` that a distribution depends on: empty without penalties."""
        if not self.penalizes:
            return []
        n = self.params.penalty_last_n
        return list(history if n < 0 else history[-n:])

    def allows_any(self, tokens: Ids) -> bool:
        """Is there one among `tokens` that no logit bias forbids?"""
        forbidden = self._forbidden
        return len(forbidden) < len(tokens) or not np.isin(tokens, forbidden).all()

    def likeliest(
        self, logits: Logits, history: Sequence[int], n: int, tokens: Ids | None = None
    ) -> list[tuple[int, float]]:
        """The `n` likeliest next tokens, or what there is, likeliest first, with probabilities.

        At temperature 0 those of temperature 1: how sure a greedy draft is. Arguments and errors
        as for `distribution`.
        """
        if self.params.greedy:
            logits = self._adjusted(logits, history, tokens)
            ids = self._rows.near(logits, GAPS[0])
            chosen = logits[ids]
            weights = np.exp(chosen - chosen.max())
            found = Distribution(ids if tokens is None else tokens[ids], weights / weights.sum())
        else:
            found = self.distribution(logits, history, tokens)
        first = _descending(found.p, _largest(found.p, n))
        best = first if found.ids is None else found.ids[first]
        return list(zip(best.tolist(), found.p[first].tolist(), strict=True))

    def ranked(
        self, logits: Logits, history: Sequence[int], n: int, tokens: Ids | None = None
    ) -> list[int]:
        """The `n` likeliest next tokens, or what is not forbidden, likeliest first.

        Arguments and errors as for `distribution`.
        """
        logits = self._adjusted(logits, history, tokens)
        ids = self._rows.top_k(logits, n)
        ids = ids[logits[ids] > -np.inf]
        best: list[int] = (ids if tokens is None else tokens[ids]).tolist()
        return best

    def argmax(self, logits: Logits, history: Sequence[int], tokens: Ids | None = None) -> int:
        """The likeliest next token; arguments and errors as for `distribution`."""
        logits = self._adjusted(logits, history, tokens)
        i = self._rows.argmax(logits)
        return i if tokens is None else int(tokens[i])

    def _adjusted(self, logits: Logits, history: Sequence[int], tokens: Ids | None) -> Logits:
        if not self._adjusts:
            return logits
        logits = logits.copy()
        ids, known = _places(self._bias_ids, len(logits), tokens)
        logits[ids] += self._bias[known]
        if self.penalizes:
            params, recent = self.params, self.recent(history)
            if tokens is not None:
                wanted = np.array(recent, np.intp)
                recent = _places(wanted, len(logits), tokens)[0].tolist()
            self._rows.penalize(
                logits,
                recent,
                params.repeat_penalty,
                params.frequency_penalty,
                params.presence_penalty,
            )
        return logits


def _places(wanted: Ids, n: int, tokens: Ids | None) -> tuple[Ids, NDArray[np.bool_]]:
    """Where the logits of the tokens `wanted` are, and which of them have one at all."""
    if tokens is None:
        known = wanted < n
        return wanted[known], known
    places = np.minimum(tokens.searchsorted(wanted), n - 1)
    known = tokens[places] == wanted
    return places[known], known


def _top_p(logits: Logits, top_p: float, log_min_p: float) -> Ids:
    """The tokens that survive top-p and min-p, ascending."""
    top = finite_top(logits)
    weights = np.exp(logits - top)
    # llama.cpp adds one by one in single precision: over a whole vocabulary its rounding decides
    # where top-p ends, so it is kept.
    total = weights.cumsum(dtype=np.float32)[-1]
    near = (np.flatnonzero(logits > top - gap) for gap in GAPS)
    # A little more than the mass, for sums in single precision differ with their order.
    mass = top_p * total * (1 + 1e-5)
    enough = (ids for ids in near if float(weights[ids].sum()) > mass)
    ids = _descending(logits, next(enough, np.arange(len(logits))))
    chosen = logits[ids]
    cumulative = (np.exp(chosen - top) / total).cumsum(dtype=np.float32)
    keep = int(cumulative.searchsorted(np.float32(top_p))) + 1
    keep = min(keep, len(ids) - int(chosen[::-1].searchsorted(top + np.float32(log_min_p))))
    return np.sort(ids[:keep])


def _largest(values: Floats, n: int) -> Ids:
    """Where the `n` largest are, in no order."""
    return values.argpartition(-n)[-n:] if n < len(values) else np.arange(len(values))


def _descending(logits: Logits | Floats, ids: Ids) -> Ids:
    return ids[(-logits[ids]).argsort(kind="stable")]
