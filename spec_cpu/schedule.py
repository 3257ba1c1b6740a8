"""How much to draft next, from what was accepted so far and from what passes cost here.

A verification is not free on a CPU, so each cycle weighs E(k), the tokens that k drafted ones are
expected to bring, against the seconds of that cycle. k = 0, plain decoding, is an answer like any
other. `Scheduler` chooses; `_Acceptance` foretells E(k), `_Confidence` a single token, and `Pace`
corrects the given costs by what passes take in this run.

What makes exploring safe is a purse: the seconds that the run is ahead of plain decoding, plus 1 %
of plain decoding's time, plus a start of 2.5 plain steps. A block is drafted only if the purse can
bear that it is rejected as a whole. So whatever the text does, n tokens take no longer than
1.01 n + 2.5 plain steps would (by the corrected costs), which is 0.98 of plain decoding's speed
from 256 tokens on; and where nothing pays, looking now and then whether the text has changed takes
that 1 %. This is the rule of conservative bandits with plain decoding as the known arm (Wu et al.
2016, "Conservative Bandits").

Nothing is random: the same observations lead to the same choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spec_cpu.cost import Costs
from spec_cpu.pace import Pace

Array = NDArray[np.float64]

_MEMORIES = (0.85, 0.95, 0.99)  # kept from one drafting cycle to the next
_KEPT_COUNTS = np.array(_MEMORIES)[:, None]
_SHARE = 0.02  # of the trust in the memories, dealt out anew every cycle
_WRONG = 0.05  # trust below which a memory starts over from the one trusted most
_HOPE = 0.15  # trust in the longest memory up to which drafting is not given up against it
_PRIOR, _PRIOR_COUNT = 0.6, 1.0  # acceptance at the first position, and the trials it is worth
_BORROWED = 3.0  # trials that one position's mean is worth at the next

_START = 2.5  # plain steps in the purse at first, and at most when drafting is given up
_INTEREST = 0.01  # of plain decoding's time, that drafting may lose
_PROBE = 2  # tokens in a probe, at most
_GAIN = 1.04  # how much better another width must be
_MARGIN = 1.25  # how wrong costs may be that rule drafting out for good
_HOPELESS = "no draft pays on this machine, even if every token were accepted"
_HOLD = (4.0, 20.0, 100.0)  # cycles that a width is expected to last: least, at first, most

_BINS, _BIN_COUNT, _BIN_KEPT = 8, 4.0, 0.995


class Schedule(Protocol):
    """What decides how many tokens are drafted in a cycle. See `Scheduler`.

    Attributes:
        by_confidence: does it ask how sure the draft is? Where not, a drafter need not work it out.
        hopeless: will it never draft, whatever is accepted?
    """

    by_confidence: bool
    hopeless: bool

    @property
    def reason(self) -> str | None: ...

    def next_k(self, room: int) -> int: ...

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool: ...

    def acceptance(self, confidence: float) -> float: ...

    def observe(
        self,
        drafted: int,
        accepted: int,
        seconds_draft: float,
        seconds_target: float,
        confidences: Sequence[float] = (),
    ) -> None: ...


class Pinned:
    """Always drafts k tokens, or what there is room for: no choice and no cut."""

    reason = None
    by_confidence = False
    hopeless = False

    def __init__(self, k: int) -> None:
        self._k = k

    def next_k(self, room: int) -> int:
        return max(0, min(self._k, room))

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool:
        return True

    def acceptance(self, confidence: float) -> float:
        return confidence

    def observe(
        self,
        drafted: int,
        accepted: int,
        seconds_draft: float,
        seconds_target: float,
        confidences: Sequence[float] = (),
    ) -> None:
        """Nothing depends on it."""


class Scheduler:
    """Chooses how many tokens to draft. Once a cycle: `next_k`, then `observe`.

    In between, a drafter that knows how sure it is may ask `worth_another` before each token.
    """

    by_confidence = True

    def __init__(self, costs: Costs, *, k_max: int, repeatable: bool = False) -> None:
        """Start at plain decoding's width, knowing nothing of the text.

        Args:
            costs: measured; corrected as the run goes.
            k_max: K, the most to draft.
            repeatable: do not correct them: the same text then leads to the same choices, whatever
                else the machine does.

        Raises:
            ValueError: a negative k, or one that `costs.passes` is too short for.
        """
        if not 0 <= k_max < len(costs.passes):
            raise ValueError(f"k must be from 0 to {len(costs.passes) - 1}, not {k_max}")
        self._k_max = k_max
        self._pace = Pace(costs)
        self._repeatable = repeatable
        self._costs = costs
        self._acceptance = _Acceptance(k_max)
        self._confidence = _Confidence()
        self._k = 0  # drafted in the last cycle
        self._plan = 0  # chosen for this one
        self._fresh = True
        self._probing = False
        self._missed = 0  # tokens decoded without the draft
        self._cut: float | None = None  # the chance of the token that was not worth drafting
        self._purse = _START * costs.cycle(0, changed=False)
        self._hold, self._held = _HOLD[1], 0
        self._on = False
        self.hopeless = all(self._never_pays(k, _MARGIN) for k in range(1, k_max + 1))
        self._reason: str | None = _HOPELESS if self.hopeless else None

    def _never_pays(self, k: int, margin: float) -> bool:
        """Would k drafted tokens not pay even if all were accepted, and cycles `margin` cheaper?"""
        plain = self._costs.cycle(0, changed=False)
        return margin * (k + 1) * plain <= self._costs.cycle(k, changed=False)

    @property
    def reason(self) -> str | None:
        """Why speculation is off, in a person's words; None while it is on."""
        return self._reason

    def next_k(self, room: int) -> int:
        """Tokens to draft in this cycle, from 0 to `room`.

        Args:
            room: the most that may be drafted: up to the end of the context and the tokens wanted.
        """
        most = max(0, min(self._k_max, room))
        if self.hopeless:
            return 0
        self._cut = None
        self._plan = self._choice(most) if most else 0
        return self._plan

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool:
        """Whether to draft one more token in this cycle.

        It is, if the tokens that it and those after it are expected to bring are worth their
        seconds at the present rate. A block cut short makes for a target pass of an odd width: the
        two graphs built for it count, too.

        For the text to stay exact this may depend on the tokens drafted so far and on the draft's
        distribution at the NEXT position, which follows from them; never on the token that is then
        drawn from it. To draw a token, find it unlikely and drop it would be to draft from another
        distribution than the q that verification is told. So ask before drawing, with a property
        of the whole distribution.

        Args:
            drafted: tokens drafted in this cycle.
            reach: the chance that all of them are accepted: the product of `acceptance` over them.
            confidence: the draft's largest probability at the next position.
        """
        if drafted >= self._plan:
            return False
        if self._probing or drafted == 0:  # the draft has read the text: its first token is paid
            return True
        chance = self.acceptance(confidence)
        later = self._acceptance.conditional[drafted + 1 : self._plan]
        gains = reach * chance * np.cumprod([1.0, *later])
        seconds = np.array([self._detour(k) for k in range(drafted, self._plan + 1)])
        rate = self._acceptance.tokens[self._plan] / self._costs.cycle(self._plan, changed=False)
        if (np.cumsum(gains) > (seconds[1:] - seconds[0]) * rate).any():
            return True
        self._cut = chance
        return False

    def acceptance(self, confidence: float) -> float:
        """The chance that a token is accepted where the draft's largest probability is this.

        Judged by what became of the tokens tried so far.
        """
        return self._confidence.acceptance(confidence)

    def observe(
        self,
        drafted: int,
        accepted: int,
        seconds_draft: float,
        seconds_target: float,
        confidences: Sequence[float] = (),
    ) -> None:
        """Learn from a cycle.

        Args:
            drafted: tokens proposed; fewer than `next_k` said where the block was cut or ended.
            accepted: how many of them stayed.
            seconds_draft: all of the draft's work.
            seconds_target: the target's pass over `drafted` + 1 tokens.
            confidences: what `worth_another` was told for each drafted token, if it was asked.

        Raises:
            ValueError: not 0 <= accepted <= drafted <= K.
        """
        if not 0 <= accepted <= drafted <= self._k_max:
            raise ValueError(f"{accepted} of {drafted} drafted tokens accepted: cannot be")
        self._fresh = False
        if self.hopeless:  # nothing that could be learnt would change the choice
            return
        changed = drafted != self._k
        self._account(drafted, accepted, changed)
        if drafted:
            cut = self._cut if accepted == drafted else None
            self._acceptance.count(drafted, accepted, cut)
            self._confidence.count(confidences, accepted)
        if not self._repeatable:
            self._correct(drafted, seconds_draft, seconds_target, changed)
        self._missed = 0 if drafted else self._missed + 1
        self._k = drafted

    def _correct(
        self, drafted: int, seconds_draft: float, seconds_target: float, changed: bool
    ) -> None:
        if drafted and not self._missed:
            self._pace.draft(seconds_draft, drafted)
        if not changed:  # else it built a graph, too
            self._pace.target(seconds_target, drafted + 1)
        self._costs = self._pace.corrected()

    def _account(self, drafted: int, accepted: int, changed: bool) -> None:
        """Settle a cycle with the purse, and see how long widths last."""
        plain = self._costs.cycle(0, changed=False)
        self._purse += (1.0 + _INTEREST) * plain * (accepted + 1)
        self._purse -= self._costs.cycle(drafted, changed=changed)
        if drafted:
            self._purse -= self._costs.reading(self._missed)
        if changed and not self._probing:
            self._hold += 0.2 * (min(max(self._held, _HOLD[0]), _HOLD[2]) - self._hold)
            self._held = 0
        self._held += 1

    def _choice(self, most: int) -> int:
        """The best k that the purse can bear; the present one unless another is clearly better."""
        self._probing = False
        if self._fresh:
            return 0  # a pass that the others can be compared with
        rates = self._rates()
        drafts = [k for k in range(1, most + 1) if self._loss(k) <= self._purse]
        best = max([0, *drafts], key=lambda k: float(rates[k]))
        if self._k in drafts and rates[best] <= _GAIN * rates[self._k]:
            best = self._k
        if rates[best] <= rates[0] and self._on:
            # Giving up costs the purse and a long wait: not while the longest memory is against it.
            hopes = rates * self._acceptance.hopes / self._acceptance.tokens
            best = max([0, *drafts], key=lambda k: float(hopes[k]))
        elif rates[best] <= rates[0]:
            best = 0
        if best:
            self._on, self._reason = True, None
            return best
        return self._off(most, pays=bool(rates.argmax() > 0))

    def _off(self, most: int, *, pays: bool) -> int:
        """Plain decoding, or a probe. `pays`: a draft would, but for the purse or the room."""
        if all(self._never_pays(k, 1.0) for k in range(1, self._k_max + 1)):
            self._on = False
            self._reason = _HOPELESS
            return 0
        if most == self._k_max:
            self._reason = f"too few tokens are accepted ({self._acceptance.conditional[0]:.0%})"
        if pays:
            return 0
        if self._on:
            # What drafting earned is not spent on finding out when it will earn again.
            self._purse = min(self._purse, _START * self._costs.cycle(0, changed=False))
            self._on = False
        probes = [k for k in range(1, min(_PROBE, most) + 1) if self._loss(k) <= self._purse]
        self._probing = bool(probes)
        return max(probes, default=0)

    def _rates(self) -> Array:
        """Tokens a second for each k, a change of width spread over the cycles it will last."""
        change = self._costs.rebuild / self._hold
        back = self._costs.reading(self._missed) / self._hold
        seconds = [
            self._costs.cycle(k, changed=False) + (k != self._k) * change + (k > 0) * back
            for k in range(self._k_max + 1)
        ]
        rates: Array = self._acceptance.tokens / seconds
        return rates

    def _loss(self, k: int) -> float:
        """Seconds behind plain decoding if all k are rejected, and its width returned to."""
        cycle = self._costs.cycle(k, changed=k != self._k) + self._costs.reading(self._missed)
        return cycle + self._costs.rebuild - self._costs.cycle(0, changed=False)

    def _detour(self, k: int) -> float:
        """Seconds of a cycle with k drafted tokens, and of returning to the planned width."""
        back = self._costs.rebuild * (k != self._plan)
        return self._costs.cycle(k, changed=k != self._k) + back


class _Acceptance:
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


class _Confidence:
    """The draft's largest probability at a position, calibrated: the chance of acceptance there."""

    def __init__(self) -> None:
        self._tried = np.zeros(_BINS)
        self._accepted = np.zeros(_BINS)

    def acceptance(self, confidence: float) -> float:
        """The record of confidences like this one; what all tokens came to as its prior.

        Not the confidence itself: at temperature 0 a draft that is 40 % sure may be right nine
        times in ten, and what is cut for want of confidence is never found to have been right.
        """
        i = self._bin(confidence)
        usual = (self._accepted.sum() + confidence) / (self._tried.sum() + 1.0)
        return float((self._accepted[i] + _BIN_COUNT * usual) / (self._tried[i] + _BIN_COUNT))

    def count(self, confidences: Sequence[float], accepted: int) -> None:
        self._tried *= _BIN_KEPT
        self._accepted *= _BIN_KEPT
        for i, confidence in enumerate(confidences[: accepted + 1]):
            self._tried[self._bin(confidence)] += 1.0
            self._accepted[self._bin(confidence)] += i < accepted

    def _bin(self, confidence: float) -> int:
        return min(int(confidence * _BINS), _BINS - 1)
