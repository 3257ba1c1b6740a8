"""What will be accepted: by the position in a block, and by how sure the draft is."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MEMORIES = (0.85, 0.95, 0.99)  # kept from one drafting cycle to the next
_KEPT_COUNTS = np.array(_MEMORIES)[:, None]
_SHARE = 0.02  # of the trust in the memories, dealt out anew every cycle
_WRONG = 0.05  # trust below which a memory starts over from the one trusted most
_HOPE = 0.15  # trust in the longest memory up to which drafting is not given up against it
_PRIOR, _PRIOR_COUNT = 0.6, 1.0  # acceptance at the first position, and the trials it is worth
_BORROWED = 3.0  # trials that one position's mean is worth at the next

_BINS, _BIN_COUNT, _BIN_KEPT = 8, 4.0, 0.995
_DOUBT = 0.3  # failures that were not seen: a passage that was copied so far will end
_OUTCOME_KEPT = 0.96  # of what was learnt of a chance, from one outcome to the next
_TREE_KEPT = 0.9  # of what usually follows a node, from one tree to the next
_OCTAVES, _OCTAVE_COUNT, _OCTAVE_KEPT = 8, 2.0, 0.97


class Acceptance:
    """The chance that a position of a block is accepted, given that it is reached.

    Counts of reached and accepted at each position, because acceptance is correlated in a block:
    E(k) is not a sum of alpha^i. They are kept in memories that forget at different rates. Each
    foretells the next block and is trusted as well as it did; a little trust is dealt out anew each
    time (fixed share: Herbster and Warmuth 1998, "Tracking the Best Expert"). So short memories
    take over within a few cycles of a change, and the longest in quiet. One that lost all trust
    starts over from the counts of the best.

    In a memory each position has a Beta posterior, its prior the mean of the position before: what
    was never tried is taken to be like what was. The mean of a product of independent posteriors is
    the product of their means, so that E(k) needs nothing else of them.

    Attributes:
        conditional: K chances, each given that the position before was accepted.
        tokens: E(k) for k = 0 .. K, the correction or bonus included.
        hopes: the same by the longest memory alone; 1 where that is not trusted.
    """

    def __init__(self, k_max: int) -> None:
        self._tried = np.zeros((len(_MEMORIES), k_max))
        self._accepted = np.zeros_like(self._tried)
        self._trust = np.full(len(_MEMORIES), 1.0 / len(_MEMORIES))
        self._foretell()

    def count(self, drafted: int, accepted: int, cut: float | None) -> None:
        """Learn from a block.

        Args:
            cut: of a block cut short and accepted as a whole, the chance of the next token. It
                stands for the outcome: else deep positions counted only where the draft is sure.
        """
        likelihood = self._means[:, :accepted].prod(axis=1)
        if accepted < drafted:
            likelihood = likelihood * (1.0 - self._means[:, accepted])
        trust = self._trust * likelihood
        self._trust = (1.0 - _SHARE) * trust / trust.sum() + _SHARE / len(_MEMORIES)
        wrong = self._trust < _WRONG
        self._tried[wrong] = self._tried[self._trust.argmax()]
        self._accepted[wrong] = self._accepted[self._trust.argmax()]
        self._tried *= _KEPT_COUNTS
        self._accepted *= _KEPT_COUNTS
        self._tried[:, : min(accepted + 1, drafted)] += 1.0
        self._accepted[:, :accepted] += 1.0
        if cut is not None:
            self._tried[:, drafted] += 1.0
            self._accepted[:, drafted] += cut
        self._foretell()

    def _foretell(self) -> None:
        means: list[list[float]] = []
        for tried, accepted in zip(self._tried.tolist(), self._accepted.tolist(), strict=True):
            mean, count = _PRIOR, _PRIOR_COUNT
            means.append([])
            for n, k in zip(tried, accepted, strict=True):
                mean, count = (k + count * mean) / (n + count), _BORROWED
                means[-1].append(mean)
        self._means = np.array(means)
        chains = self._means.cumprod(axis=1)
        reached = self._trust @ chains
        self.conditional: Array = reached / [1.0, *reached[:-1]] if reached.size else reached
        self.tokens: Array = np.cumsum([1.0, *reached])
        self.hopes: Array = np.cumsum([1.0, *(chains[-1] * (self._trust[-1] >= _HOPE))])


class Confidence:
    """The draft's largest probability at a position, calibrated: the chance of acceptance there."""

    def __init__(self) -> None:
        self._tried = np.zeros(_BINS)
        self._accepted = np.zeros(_BINS)

    def acceptance(self, confidence: float) -> float:
        """The record of confidences like this one; what all tokens came to as its prior.

        Not the confidence itself: at temperature 0 a draft that is 40 % sure may be right nine
        times in ten, and what is cut for want of confidence is never found to have been right.
        """
        i = _bin(confidence)
        usual = (self._accepted.sum() + confidence) / (self._tried.sum() + 1.0)
        return float((self._accepted[i] + _BIN_COUNT * usual) / (self._tried[i] + _BIN_COUNT))

    def count(self, tried: Sequence[tuple[float, bool]]) -> None:
        """Learn from tokens that were tried: how sure the draft was of each, and its fate."""
        self._tried *= _BIN_KEPT
        self._accepted *= _BIN_KEPT
        for confidence, accepted in tried:
            self._tried[_bin(confidence)] += 1.0
            self._accepted[_bin(confidence)] += accepted


class Calibrated(Protocol):
    """Chances that a drafter gives, set right by the record: `Calibration`, `Probability`."""

    def acceptance(self, chance: float) -> float: ...

    def count(self, tried: Sequence[tuple[float, bool]]) -> None: ...


class Calibration:
    """A chance that a drafter gives, calibrated: what lately became of tokens with such a chance.

    Forgets by outcomes, not by cycles: one cycle of a copied passage has dozens of them, and must
    not outweigh for long the single one of each cycle after it.
    """

    def __init__(self) -> None:
        self._tried = [0.0] * _BINS
        self._accepted = [0.0] * _BINS

    def acceptance(self, chance: float) -> float:
        """The record of chances like this one; the chance itself, with some doubt, as its prior."""
        i = _bin(chance)
        given = self._accepted[i] + _BIN_COUNT * chance
        return given / (self._tried[i] + _BIN_COUNT + _DOUBT)

    def count(self, tried: Sequence[tuple[float, bool]]) -> None:
        """Learn from tokens that were tried: the chance of each, and its fate."""
        for chance, accepted in tried:
            i = _bin(chance)
            self._tried[i] = _OUTCOME_KEPT * self._tried[i] + 1.0
            self._accepted[i] = _OUTCOME_KEPT * self._accepted[i] + accepted


class Probability:
    """A draft's probability of a token, calibrated: times what came of such ones for each expected.

    By octaves, and in proportion within each: of the tokens that may follow a node most are
    unlikely, but not all alike, and what is too high or too low by a factor is so for all of them.
    """

    def __init__(self) -> None:
        self._expected = [_OCTAVE_COUNT] * _OCTAVES
        self._accepted = [_OCTAVE_COUNT] * _OCTAVES

    def acceptance(self, chance: float) -> float:
        """What the record makes of `chance`; `chance` itself where there is none."""
        i = _octave(chance)
        return min(1.0, chance * self._accepted[i] / self._expected[i])

    def count(self, tried: Sequence[tuple[float, bool]]) -> None:
        """Learn from tokens that were tried: the probability of each, and its fate."""
        for chance, accepted in tried:
            i = _octave(chance)
            # An outcome counts as much as was expected of it: so does what it makes forgotten.
            kept = 1.0 - (1.0 - _OCTAVE_KEPT) * chance
            self._expected[i] = kept * self._expected[i] + chance
            self._accepted[i] = kept * self._accepted[i] + accepted


class Followed:
    """How likely the best token after a node is accepted if the node is, by what drafters say.

    The mean of the latest trees, each node weighed by its chance of being reached.
    """

    def __init__(self) -> None:
        self._accepted, self._reached = _PRIOR, 1.0

    @property
    def chance(self) -> float:
        """Of the best token after a node."""
        return self._accepted / self._reached

    def learn(self, parents: Sequence[int], reach: Sequence[float]) -> None:
        """Learn from a tree.

        Args:
            parents: of each node, -1 for the root.
            reach: the chance of each that it is reached and accepted.
        """
        best: dict[int, float] = {}
        for parent, chance in zip(parents, reach, strict=True):
            best[parent] = max(chance, best.get(parent, 0.0))
        if best:
            reached = sum(1.0 if parent < 0 else reach[parent] for parent in best)
            self._accepted = _TREE_KEPT * self._accepted + sum(best.values())
            self._reached = _TREE_KEPT * self._reached + reached


def _octave(chance: float) -> int:
    return _OCTAVES - 1 if chance <= 0.5**_OCTAVES else int(-log2(chance))


def _bin(confidence: float) -> int:
    return min(int(confidence * _BINS), _BINS - 1)
