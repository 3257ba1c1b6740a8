"""How much to draft next, from what was accepted so far and from what passes cost here.

A verification is not free on a CPU, so each cycle weighs E(k), the tokens that k drafted ones are
expected to bring, against the seconds of that cycle. k = 0, plain decoding, is an answer like any
other. `Scheduler` chooses; `Acceptance` foretells E(k), `Confidence` a single token, and `Pace`
corrects the given costs by what passes take in this run.

What makes exploring safe is the `Purse`: a block is drafted only if that can bear that it is
rejected as a whole. Where nothing pays, looking now and then whether the text has changed takes the
1 % that it allows.

Nothing is random: the same observations lead to the same choices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.acceptance import Acceptance, Array, Confidence
from spec_cpu.cycle.pace import Pace
from spec_cpu.cycle.purse import Purse
from spec_cpu.cycle.schedule_base import (
    AGING,
    HOPELESS,
    MARGIN,
    NAP,
    Outcome,
    check_outcome,
    never_pays,
)
from spec_cpu.draft.tree import TokenTree

_PROBE = 2  # tokens in a probe, at most
_GAIN = 1.04  # how much better another width must be
_HOLD = (4.0, 20.0, 100.0)  # cycles that a width is expected to last: least, at first, most


class Scheduler:
    """Chooses how many tokens to draft. Once a cycle: `next_k`, then `observe`.

    In between, a drafter that knows how sure it is may ask `worth_another` before each token.
    """

    by_confidence = True

    def __init__(
        self,
        costs: Costs,
        *,
        k_max: int,
        repeatable: bool = False,
        share: float = 1.0,
        advance: float | None = None,
    ) -> None:
        """Start at plain decoding's width, knowing nothing of the text.

        Args:
            costs: measured; corrected as the run goes.
            k_max: K, the most to draft.
            repeatable: do not correct them: the same text then leads to the same choices, whatever
                else the machine does.
            share: of the 1 % that drafting may lose, see `Purse`.
            advance: plain steps that it may lose at first; default: as `Purse` has it.

        Raises:
            ValueError: a negative k, or one that `costs.passes` is too short for.
        """
        if not 0 <= k_max < len(costs.passes):
            raise ValueError(f"k must be from 0 to {len(costs.passes) - 1}, not {k_max}")
        self._k_max = k_max
        self._pace = Pace(costs)
        self._repeatable = repeatable
        self._costs = costs
        self._acceptance = Acceptance(k_max)
        self._confidence = Confidence()
        self._k = 0  # drafted in the last cycle
        self._plan = 0  # chosen for this one
        self._fresh = True
        self._probing = False
        self._missed = 0  # tokens decoded without the draft
        self._cut: float | None = None  # the chance of the token that was not worth drafting
        self._purse = Purse(costs.cycle(0, changed=False), share, advance)
        self._hold, self._held = _HOLD[1], 0
        self._on = False
        self._nap = 0  # plain steps left until the choice is weighed again
        self._slept = 0  # taken meanwhile, and not accounted for yet
        self.hopeless = never_pays(costs.at(0), MARGIN, k_max)
        self._reason: str | None = HOPELESS if self.hopeless else None

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
        if self.hopeless or self._nap:
            return 0
        self._wake()
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

    def worth_pass(self, chances: Sequence[float], layer: Sequence[float]) -> int:
        """A tree grows to a chain of the planned length. See `weigh.Weigher.worth_pass`."""
        return int(len(chances) < self._plan)

    def worth_at_once(self, chances: Sequence[float]) -> bool:
        """A tree that takes one pass is drafted where a chain would be."""
        return self._plan > 0

    def acceptance(self, confidence: float) -> float:
        """The chance that a token is accepted where the draft's largest probability is this.

        Judged by what became of the tokens tried so far.
        """
        return self._confidence.acceptance(confidence)

    def worth(self, tree: TokenTree) -> int:
        """All of it: it was cut while it was drawn, and what was drawn cannot be taken back."""
        return len(tree)

    @property
    def promise(self) -> float:
        """Tokens a second of a cycle with the chosen k, the draft's catching up included.

        The longer another drafter is preferred, the more: a record that is not tried does not
        change, though the text does. To try one that is worse by x % once in x tokens costs 1 %.
        """
        seconds = self._costs.cycle(self._plan, changed=self._plan != self._k)
        seconds += self._costs.reading(self._missed) + self._recovery(self._plan)
        tokens = float(self._acceptance.tokens[self._plan])
        return (1.0 + AGING * self._missed) * tokens / seconds

    def observe(self, outcome: Outcome) -> None:
        """Learn from a cycle. Fewer tokens than `next_k` said: the block was cut, or ended.

        Raises:
            ValueError: not 0 <= accepted <= drafted <= K.
        """
        drafted, accepted = outcome.drafted, outcome.accepted
        check_outcome(outcome, self._k_max if outcome.own else len(self._costs.passes) - 1)
        self._fresh = False
        if self.hopeless:  # nothing that could be learnt would change the choice
            return
        if outcome.depth is not None and self._pace.move(outcome.depth):
            self._costs = self._pace.corrected(self._costs.rebuild)
        if self._nap:
            self._nap -= 1
            if outcome.own and not self._k:
                self._slept += 1
                return
        changed = drafted != self._k
        self._account(outcome, changed)
        if outcome.own and drafted:
            cut = self._cut if accepted == drafted else None
            self._acceptance.count(drafted, accepted, cut)
            self._confidence.count(outcome.tried)
        if not self._repeatable:
            self._correct(outcome, changed)
        self._missed = 0 if outcome.own and drafted else self._missed + accepted + 1
        self._k = drafted

    def _correct(self, outcome: Outcome, changed: bool) -> None:
        if outcome.own and outcome.drafted and not self._missed:
            self._pace.draft(outcome.seconds_draft, outcome.drafted, missed=0)
        if not changed:  # else it built a graph, too
            self._pace.target(outcome.seconds_target, outcome.drafted + 1)
        self._costs = self._pace.corrected(self._costs.rebuild)

    def _wake(self) -> None:
        """Account for the steps of a nap."""
        plain = self._costs.cycle(0, changed=False)
        self._purse.settle(plain, self._slept, self._slept * plain)
        self._missed += self._slept
        self._held += self._slept
        self._slept = 0

    def _account(self, outcome: Outcome, changed: bool) -> None:
        """Settle a cycle with the purse, and see how long widths last."""
        drafted, tokens = outcome.drafted, outcome.accepted + 1
        plain = self._costs.cycle(0, changed=False)
        seconds = self._costs.cycle(drafted, changed=changed)
        seconds += self._costs.reading(self._missed) if drafted else 0.0
        seconds += self._recovery(drafted)
        self._purse.settle(plain, tokens, seconds if outcome.own else tokens * plain)
        if changed and not (outcome.own and self._probing):
            self._hold += 0.2 * (min(max(self._held, _HOLD[0]), _HOLD[2]) - self._hold)
            self._held = 0
        self._held += 1

    def _choice(self, most: int) -> int:
        """The best k that the purse can bear; the present one unless another is clearly better."""
        self._probing = False
        if self._fresh:
            return 0  # a pass that the others can be compared with
        rates = self._rates()
        drafts = [k for k in range(1, most + 1) if self._purse.bears(self._loss(k))]
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
        probe = self._off(most, pays=bool(rates.argmax() > 0))
        if not probe and not self._on and self._k == 0:
            # Only a fuller purse could change that: no k loses less than 1.
            steps = self._purse.steps_until(self._loss(1), self._costs.cycle(0, changed=False))
            self._nap = NAP if self._reason == HOPELESS else min(NAP, steps)
        return probe

    def _off(self, most: int, *, pays: bool) -> int:
        """Plain decoding, or a probe. `pays`: a draft would, but for the purse or the room."""
        if never_pays(self._costs, 1.0, self._k_max):
            self._on = False
            self._reason = HOPELESS
            return 0
        if most == self._k_max:
            self._reason = f"too few tokens are accepted ({self._acceptance.conditional[0]:.0%})"
        if pays:
            return 0
        if self._on:
            # What drafting earned is not spent on finding out when it will earn again.
            self._purse.forget_gains(self._costs.cycle(0, changed=False))
            self._on = False
        probes = [k for k in range(1, min(_PROBE, most) + 1) if self._purse.bears(self._loss(k))]
        self._probing = bool(probes)
        return max(probes, default=0)

    def _rates(self) -> Array:
        """Tokens a second for each k, a change of width spread over the cycles it will last."""
        change = self._costs.rebuild / self._hold
        back = (self._costs.reading(self._missed) + self._recovery(1)) / self._hold
        seconds = [
            self._costs.cycle(k, changed=False) + (k != self._k) * change + (k > 0) * back
            for k in range(self._k_max + 1)
        ]
        rates: Array = self._acceptance.tokens / seconds
        return rates

    def _loss(self, k: int) -> float:
        """Seconds behind plain decoding if all k are rejected, and its width returned to."""
        cycle = self._costs.cycle(k, changed=k != self._k) + self._costs.reading(self._missed)
        cycle += self._recovery(k)
        return cycle + self._costs.rebuild - self._costs.cycle(0, changed=False)

    def _recovery(self, k: int) -> float:
        """Seconds that plain steps will lose because of k tokens, and do not lose anyway."""
        return self._costs.recovery if k and not self._k else 0.0

    def _detour(self, k: int) -> float:
        """Seconds of a cycle with k drafted tokens, and of returning to the planned width."""
        back = self._costs.rebuild * (k != self._plan)
        return self._costs.cycle(k, changed=k != self._k) + back
