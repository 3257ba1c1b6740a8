"""How much to draft and to verify: what a cycle is worth, from what is accepted and what it costs.

A verification is not free on a CPU. A cycle is worth E - rate * seconds: tokens expected, less what
its seconds would bring at the usual rate. Taking the best of each cycle at the rate that this
itself leads to is the best there is for the sum of all (Dinkelbach 1967, "On Nonlinear Fractional
Programming"). So n nodes are verified, and another pass of a draft is made, where that is worth
most; nothing, which is plain decoding, is an answer like any other.

Chances of chosen tokens are known from every token of the text, so that they need no exploring.
Passes of a draft do, and drawn tokens: see `Budget`. Nothing is random: the same observations lead
to the same choices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from spec_cpu.costs.acceptance import too_few
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.plan import least_acceptance
from spec_cpu.cycle.budget import Budget
from spec_cpu.cycle.calibration import Calibration, ChainRecord, Open
from spec_cpu.cycle.pace import CostsInRun, Record

HOPELESS = "no draft pays on this machine, even if every token were accepted"
DOUBTFUL = "drafting did not seem to pay while this machine was busy with something else"

_LEARNT = 0.2  # of a new observation, where a mean is kept
# Plain steps that may be spent at first on finding out whether passes pay. Without, 3 % less over
# all of the simulated texts, 10 to 14 % where a draft gets better late or beside look-ups.
_EXPLORE = 1.0
# Of a plain step, that asking sources may always take: of one of 5 ms it takes 1.0 to 1.3 %.
# Without this a tiny target's budget is spent by asking alone, and a text that repeats itself late
# is missed: 1.64 tokens a step from look-ups in place of 1.71 to 1.73.
_ALLOWED = 0.02
_IDLE = 24  # cycles without a draft after which it is said why
# Cycles that a width is expected to last, over which its change is spread. With 1, a draft that
# is no longer right keeps its node, for to leave it never pays at once; real texts lose nothing.
_LASTS = 4.0
_NAP = 8  # plain steps until it is weighed anew, which takes 2 % of a step of 5 ms


Way = tuple[float, float]
"""Tokens and seconds that a cycle is expected to bring and to take."""


class Outcome(NamedTuple):
    """What became of a cycle.

    Attributes:
        drafted: nodes that the target scored.
        accepted: how many of them stayed.
        tokens: that the cycle added to the text.
        drawn: tokens were drawn, not chosen.
        seconds_draft: all of the sources' work; `seconds_target`: the pass over `drafted` + 1.
        depth: tokens of context before it.
    """

    drafted: int
    accepted: int
    tokens: int
    seconds_draft: float
    seconds_target: float
    depth: int
    drawn: bool = False


class Beside(NamedTuple):
    """A text's part in passes that other texts share.

    Attributes:
        costs: what is left for it to pay: its share of a plain pass for all, and what its own nodes
            add to a pass as wide as the others have it.
        rate: tokens a second of all texts together, by their shares.
    """

    costs: Costs
    rate: float


class Policy:
    """Chooses for the text of a session. Once a cycle: `most`, then the questions, then `observe`.

    Attributes:
        calibration: what sources' chances come to.
        floor: the chance below which no node is worth its place in a pass.
        brought: tokens of the cycles with passes of a draft, and how many plain steps they took;
            without what was expected of look-ups alone, beyond plain steps.
    """

    def __init__(
        self,
        costs: Costs,
        *,
        most: int,
        deepest: int,
        passes: bool,
        repeatable: bool = False,
        explore: float | None = None,
    ) -> None:
        """Start at plain decoding, knowing nothing of the text.

        Args:
            costs: measured; corrected as the run goes.
            most: nodes of a tree. `deepest`: tokens of a chain that is drawn.
            passes: is there a source that takes passes?
            repeatable: do not correct the costs: the same text then leads to the same choices,
                whatever else the machine does.
            explore: plain steps that finding out whether passes pay may take; default: 1.

        Raises:
            ValueError: `costs.passes` is too short.
        """
        if min(most, deepest) < 0 or max(most, deepest) >= len(costs.passes):
            asked = f"{most} and {deepest}"
            raise ValueError(f"nodes must be from 0 to {len(costs.passes) - 1}, not {asked}")
        self.calibration = Calibration()
        self._most, self._deepest, self._passes = most, deepest, passes
        self._in_run = CostsInRun(costs)
        self._beside: Beside | None = None
        self._repeatable = repeatable
        self._disturbed = bool(costs.disturbed)
        plain = costs.passes[0] + costs.row
        self._budget = Budget(plain, (_EXPLORE if explore is None else explore) if passes else 0.0)
        self._record = Record(1.0, plain)
        self._n = 0  # nodes in the last pass
        self._nap = 0  # cycles for which it is known that a first pass does not pay
        self._idle = 0  # cycles since nodes were verified
        self._look = 0.0  # seconds that asking sources takes, but for passes
        self._missed = 0  # tokens since passes were made
        self._drafting = 0.0  # seconds of passes in this cycle
        self._without: Way = (1.0, plain)  # what was expected in place of these passes
        self.brought = [0.0, 0.0]
        self._exploring = False  # what is drafted in this cycle is not expected to pay
        self._correct()
        self._pace()
        self._chains = ChainRecord()

    # -- what there is to know ----------------------------------------------------------------

    @property
    def reason(self) -> str | None:
        """Why nothing is drafted, in a person's words; None while something is."""
        if self._never:
            return DOUBTFUL if self._disturbed else HOPELESS
        if self._idle < _IDLE:
            return None
        if self._passes:
            return too_few(self.calibration.passes.seen, self._needed)
        return "the text does not repeat itself enough"

    @cached_property
    def _needed(self) -> float | None:
        """The share of guesses that would have to be accepted for passes of the draft to pay."""
        return least_acceptance(self._costs, self._deepest)

    @property
    def hopeless(self) -> bool:
        """Will it never draft, whatever is accepted? Not by costs measured beside other work."""
        return self._never and not self._disturbed

    @property
    def most(self) -> int:
        """Nodes that may be verified in this cycle."""
        return 0 if self.hopeless else self._affordable(self._asking)

    @property
    def _asking(self) -> float:
        """Seconds that asking sources takes beyond what it always may."""
        return max(0.0, self._look - _ALLOWED * self._plain)

    @property
    def rests(self) -> bool:
        """Is it known that passes do not pay where nothing was looked up?"""
        return self._nap > 0

    # -- questions of a cycle -----------------------------------------------------------------

    def begin(self) -> None:
        """Another text begins: the sources have read all of it."""
        self._missed = self._nap = 0
        self._drafting, self._exploring = 0.0, False

    def beside(self, others: Beside | None) -> None:
        """Other texts share the passes from now on; None: it is alone."""
        if others != self._beside:
            self._beside = others
            self._correct()
            self._budget.share(None if others is None else self._plain)
            self._pace()

    def verified(self, chances: Sequence[float]) -> int:
        """How many nodes to verify of those with such chances, best first."""
        (values,) = self._values(self._ways(chances, self._drafting))
        return values.index(max(values))

    def worth_pass(self, chances: Sequence[float], layer: Sequence[Open], layers: int) -> int:
        """How many nodes to extend in another pass of the draft; 0: none.

        Args:
            chances: of the nodes there are, best first.
            layer: of those that may be extended, the best to extend first.
            layers: how deep the pass sees.
        """
        if not layer:
            return 0
        first = not self._drafting
        width = self._worth_feeding(layer)
        step = self._step(width, first=first)
        most = self._affordable(self._drafting + step + self._asking)
        if not most:
            return 0
        ways = self._ways(chances[:most], self._drafting)
        best = self.calibration.passes.foreseen(chances, layer[:width], layers)[:most]
        values, then = self._values(ways, self._ways(best, self._drafting + step))
        if first:
            self._without = ways[values.index(max(values))]
        if max(then) > max(values):
            self._drafting += step
            return width
        if first and self._budget.explores(step):
            self._drafting += step
            self._exploring = True
            return width
        self._nap = _NAP if first else 0
        return 0

    def draws(self, chances: Sequence[float], room: int) -> int:
        """How many tokens to draw, at most, in place of the tree with such chances; 0: take it.

        Where to stop is decided token by token: see `worth_another`.
        """
        most = min(self._deepest, room)
        while most and self._loss(most) + self._drawing(most) > self._budget.bears:
            most -= 1
        if not most:
            self._nap = self._nap or _NAP
            return 0
        first, later = self._chains.chances
        tokens = accumulate((first * later**k for k in range(most)), initial=1.0)
        chain = [
            (t, self._cycle(k, k + 1.0, _LASTS) + self._drawing(k)) for k, t in enumerate(tokens)
        ]
        tree = self._ways(chances, 0.0)
        trees, chains = self._values(tree, chain)
        self._without = tree[trees.index(max(trees))]
        k = chains.index(max(chains[1:]), 1)
        self._chain_rate = chain[k][0] / chain[k][1]
        if chains[k] > max(trees):
            return most
        affordable = self._budget.explores(self._loss(1) + self._drawing(1))
        self._exploring = affordable and max(trees) == trees[0]
        self._nap = 0 if self._exploring else _NAP
        return int(self._exploring)

    def worth_another(self, drafted: int, reach: float, sure: float | None) -> bool:
        """Whether to draw one more token in this cycle: asked before the pass that its
        distribution takes, and again when that is known.

        For the text to stay exact this may depend on the tokens drawn so far and on the draft's
        distribution at the NEXT position, which follows from them; never on the token that is then
        drawn from it. To draw a token, find it unlikely and drop it would be to draft from another
        distribution than the q that verification is told. So ask before drawing, with a property
        of the whole distribution.

        Args:
            drafted: tokens drawn in this cycle.
            reach: the chance that all of them are accepted.
            sure: the calibrated largest probability at the next position; None: not known yet.
        """
        if drafted == 0:
            self._drafting = self._drawing(1)
            return True
        if self._exploring:
            return False
        later, rate = self._chains.chances[1], min(self._rate, self._chain_rate)
        step, row = self._costs.draft_step, self._costs.row
        base = self._cycle(drafted, 0.0, _LASTS)
        gain, gains = reach * (later if sure is None else sure), 0.0
        drafting = step if sure is None else 0.0
        for k in range(drafted + 1, self._deepest + 1):
            gains += gain
            more = self._cycle(k, 0.0, _LASTS) - base + drafting + (k - drafted) * row
            if gains > rate * more:
                self._drafting += step if sure is None else 0.0
                return True
            gain, drafting = gain * later, drafting + step
        return False

    def observe(self, outcome: Outcome) -> None:
        """Learn from a cycle."""
        if self.hopeless:
            return
        n, tokens = outcome.drafted, outcome.tokens
        seconds = self._cycle(n, tokens) + self._drafting
        if not self._repeatable:
            self._learn_costs(outcome)
            seconds += self._asking
        self._budget.settle(self._plain, tokens, seconds)
        self._record.add(tokens, seconds)
        if outcome.drawn:
            self._chains.count(n, outcome.accepted)
        expected, took = self._without
        if self._exploring:
            lost = seconds - took - (tokens - expected) * self._plain
            self._budget.explored(lost)
        if self._drafting:
            self.brought[0] += tokens - expected + 1.0
            self.brought[1] += (seconds - took) / self._plain + 1.0
            self.calibration.passes.fade()
        self._missed = 0 if self._drafting else self._missed + tokens
        self._idle = 0 if n else self._idle + 1
        self._n, self._nap = n, max(0, self._nap - 1)
        self._drafting, self._exploring = 0.0, False
        self._in_run.move(outcome.depth)
        if self._beside is None and self._costs is not self._in_run.now:
            self._correct()
        self._pace()

    # -- how that is worked out ---------------------------------------------------------------

    def _learn_costs(self, outcome: Outcome) -> None:
        if self._drafting:
            self._in_run.draft(outcome.seconds_draft - self._look, self._drafting)
        else:
            self._look += _LEARNT * (outcome.seconds_draft - self._look)
        n = outcome.drafted
        if self._beside is None:
            self._in_run.target(outcome.seconds_target, n + 1, changed=n != self._n)

    def _correct(self) -> None:
        """Go by what passes take by now."""
        self._costs = self._in_run.now if self._beside is None else self._beside.costs
        self._plain = self._costs.passes[0] + self._costs.row
        self._never = never_pays(self._costs, self._most)
        one, *more = self._costs.passes[: self._most + 1]
        slopes = ((seconds - one) / n for n, seconds in enumerate(more, 1))
        self._slope = min(slopes, default=1.0)

    def _pace(self) -> None:
        """Tokens a second, as things go, plain decoding's at least; what a node must bring."""
        rate = self._record.rate if self._beside is None else self._beside.rate
        self._rate = max(1.0 / self._plain, rate)
        self.floor = self._rate * self._slope

    def _ways(self, chances: Sequence[float], drafting: float) -> list[Way]:
        """Tokens and seconds of verifying 0, 1, 2, ... of the nodes with such chances."""
        passes, row = self._costs.passes, self._costs.row
        change = self._costs.rebuild / _LASTS
        start = (0.0 if self._n else self._costs.recovery) / _LASTS
        return [
            (
                t,
                passes[n]
                + row * t
                + drafting
                + (change if n != self._n else 0.0)
                + start * (n > 0),
            )
            for n, t in enumerate(accumulate(chances, initial=1.0))
        ]

    def _values(self, *alternatives: Sequence[Way]) -> list[list[float]]:
        """What each way of each alternative is worth.

        A text gets worse, too: what was usual must not make the best there is now look poor.
        """
        here = max(t / s for ways in alternatives for t, s in ways)
        rate = min(self._rate, max(here, 1.0 / self._plain))
        return [[t - rate * s for t, s in ways] for ways in alternatives]

    def _worth_feeding(self, layer: Sequence[Open]) -> int:
        """How many of `layer`, one at least, bring more than feeding them along takes."""
        price = self._rate * (self._costs.draft_read + self._slope)
        usual = self.calibration.passes.usual
        return max(1, sum(reach * (1.0 - known) * usual > price for reach, known in layer))

    def _step(self, nodes: int, *, first: bool) -> float:
        """Seconds of a pass of the draft over `nodes` nodes; the first takes in what it missed."""
        costs = self._costs
        before = costs.draft_catch_up + costs.reading(self._missed) if first else 0.0
        return costs.draft_step + (nodes - 1) * costs.draft_read + before

    def _drawing(self, k: int) -> float:
        return self._costs.drafting(k) + (self._costs.reading(self._missed) if k else 0.0)

    def _affordable(self, drafting: float) -> int:
        """Nodes that may be verified after so many seconds of drafting."""
        costs = self._costs
        there_and_back = 2.0 * costs.rebuild + (0.0 if self._n else costs.recovery)
        bearable = self._budget.bears - drafting - there_and_back + costs.passes[0]
        return min(self._most, max(0, bisect_right(costs.passes, bearable) - 1))

    def _loss(self, n: int) -> float:
        """Seconds behind plain decoding if all n are rejected, and its width returned to."""
        return self._cycle(n, 1.0) + self._costs.rebuild - self._plain

    def _change(self, n: int) -> float:
        """Seconds of a change of width to n nodes, and what plain steps will lose by it."""
        recovery = self._costs.recovery if n and not self._n else 0.0
        return (self._costs.rebuild if n != self._n else 0.0) + recovery

    def _cycle(self, n: int, tokens: float, lasts: float = 1.0) -> float:
        """Seconds of a cycle with n nodes, but for drafting; of a change of width a share."""
        return self._costs.passes[n] + self._change(n) / lasts + tokens * self._costs.row


def never_pays(costs: Costs, most: int) -> bool:
    """Would no draft of up to `most` tokens pay even if all were accepted?"""
    plain = costs.cycle(0, changed=False)
    return all((k + 1) * plain <= costs.cycle(k, changed=False) for k in range(1, most + 1))
