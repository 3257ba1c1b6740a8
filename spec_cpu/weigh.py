"""How much of a free proposal to verify: the schedule of drafters that take no time of their own.

What a look-up proposes, and how sure it is, differs from one cycle to the next far more than a
model's drafts do, and costs next to nothing. So it is made first and weighed then. A node is worth
its place in the pass if the chance that it is reached and accepted brings more tokens than the
seconds it adds would bring at the usual rate; the chance is judged by what became of nodes like it.
Where V is steep that leaves a short chain or nothing, where it is flat a wide tree: there is no
other rule.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from spec_cpu.acceptance import Calibration
from spec_cpu.cost import Costs
from spec_cpu.pace import Pace
from spec_cpu.purse import Purse
from spec_cpu.schedule import HOPELESS, MARGIN, Outcome, check_outcome, never_pays, reaches
from spec_cpu.tree import TokenTree

_GAIN = 0.05  # tokens that a draft must be expected to bring beyond its price
_KEPT = 0.98  # of the record of tokens and seconds, from one cycle to the next
_RECORD = 16.0  # plain steps that the record begins with
_LEARNT = 0.2  # of a new observation, where a mean is kept
_IDLE = 24  # cycles without a draft after which it is said why


class Weigher:
    """Chooses how many nodes of a tree to verify. Once a cycle: `next_k`, `worth`, `observe`.

    A cycle is worth E - rate * seconds: tokens expected, less what its seconds would bring at the
    usual rate. Taking the best n of each cycle at the rate that this itself leads to is the best
    there is for the sum of all (Dinkelbach 1967, "On Nonlinear Fractional Programming").
    """

    by_confidence = True

    def __init__(
        self, costs: Costs, *, k_max: int, repeatable: bool = False, share: float = 1.0
    ) -> None:
        """Weigh trees of up to `k_max` nodes; arguments and errors as for `Scheduler`."""
        if not 0 <= k_max < len(costs.passes):
            raise ValueError(f"k must be from 0 to {len(costs.passes) - 1}, not {k_max}")
        self._k_max = k_max
        self._costs = costs
        self._pace = Pace(costs)
        self._repeatable = repeatable
        self._calibration = Calibration()
        self.hopeless = never_pays(costs, MARGIN, k_max)
        self._n = 0  # nodes in the last pass
        self._steady = True  # was its width one that others have, too?
        self._missed = 0  # tokens since another drafter drafted
        self.promise = 0.0
        self._fresh = True
        self._idle = 0  # cycles since nodes were verified
        self._rebuild = costs.rebuild
        self._last_plain = 0.0  # seconds
        self._look = 0.0  # seconds that looking up takes
        self._purse = Purse(self._plain, share)
        self._tokens, self._seconds = _RECORD, _RECORD * self._plain

    @property
    def reason(self) -> str | None:
        """Why nothing is drafted, in a person's words; None while something is."""
        if self.hopeless or never_pays(self._costs, 1.0, self._k_max):
            return HOPELESS
        return "the text does not repeat itself enough" if self._idle >= _IDLE else None

    def next_k(self, room: int) -> int:
        """Nodes to propose: no more than can be tried, for each takes a moment to look up."""
        if self.hopeless or self._fresh:  # the first pass is one that others can be compared with
            return 0
        n = 0
        most = min(self._k_max, room)
        while n < most and self._purse.bears(self._loss(n + 1) + self._look):
            n += 1
        return n

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool:
        """Proposing costs nothing: yes."""
        return True

    def acceptance(self, confidence: float) -> float:
        """The chance that a node is accepted of which the drafter is so sure, if it is reached."""
        return self._calibration.acceptance(confidence)

    def worth(self, tree: TokenTree) -> int:
        """How many nodes of `tree`, whose first are the best, the target should score."""
        expected = [*accumulate(reaches(tree, self.acceptance), initial=1.0)]
        seconds = [self._cycle(n, tokens) for n, tokens in enumerate(expected)]
        # A text gets worse, too: what was usual must not make the best there is now look poor.
        here = max(tokens / took for tokens, took in zip(expected, seconds, strict=True))
        rate = min(self._rate, max(here, 1.0 / self._plain))
        worth = [
            tokens - rate * took - _GAIN * (n > 0)
            for n, (tokens, took) in enumerate(zip(expected, seconds, strict=True))
        ]
        n = worth.index(max(worth))
        self.promise = expected[n] / seconds[n]
        return n

    def observe(self, outcome: Outcome) -> None:
        """Learn from a cycle.

        Raises:
            ValueError: not 0 <= accepted <= drafted <= K.
        """
        check_outcome(outcome, self._k_max if outcome.own else len(self._costs.passes) - 1)
        self._fresh = False
        if self.hopeless:
            return
        n, tokens = outcome.drafted, outcome.accepted + 1
        changed = n != self._n
        seconds = self._pass(n) + tokens * self._costs.row
        if not outcome.own:
            seconds += self._costs.drafting(n) + self._costs.reading(self._missed)
        looking = 0.0 if self._repeatable else outcome.seconds_draft
        self._look += _LEARNT * (looking - self._look)
        own = seconds if outcome.own else tokens * self._plain
        self._purse.settle(self._plain, tokens, own + looking)
        self._tokens = _KEPT * self._tokens + tokens
        self._seconds = _KEPT * self._seconds + seconds
        self._calibration.count(outcome.tried)
        self._idle = 0 if n and outcome.own else self._idle + 1
        self._missed = self._missed + tokens if outcome.own else 0
        self._steady = n == 0 or not outcome.own
        if not self._repeatable:
            self._correct(n, outcome.seconds_target, changed)
        self._n = n

    def _correct(self, n: int, seconds: float, changed: bool) -> None:
        """Learn what passes take, those of new widths as well: here widths hardly ever repeat."""
        if n == 0 and not changed:
            self._last_plain = seconds
        elif n == 0 and self._last_plain:
            extra = min(max(0.0, seconds / self._last_plain - 1.0), 1.0) * self._costs.passes[0]
            self._rebuild += _LEARNT * (extra - self._rebuild)
        self._pace.target(max(0.0, seconds - changed * self._rebuild), n + 1)
        self._costs = replace(self._pace.corrected(), rebuild=self._rebuild)

    @property
    def _plain(self) -> float:
        return self._costs.passes[0] + self._costs.row

    @property
    def _rate(self) -> float:
        """Tokens a second, as things go; plain decoding's at least."""
        return max(1.0 / self._plain, self._tokens / self._seconds)

    def _pass(self, n: int) -> float:
        return self._costs.passes[n] + (n != self._n) * self._costs.rebuild

    def _cycle(self, n: int, tokens: float) -> float:
        """Seconds of a cycle with n nodes, that of going back to a steady width among them.

        Only the rows on the accepted path are sampled from: one a token.
        """
        back = self._costs.rebuild * (n > 0 and n != self._n and self._steady)
        return self._pass(n) + back + tokens * self._costs.row

    def _loss(self, n: int) -> float:
        """Seconds behind plain decoding if all n are rejected."""
        return self._pass(n) + self._costs.rebuild + self._costs.row - self._plain
