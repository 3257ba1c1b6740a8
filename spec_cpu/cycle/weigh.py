"""How much of a tree to draft and to verify: the schedule of drafters that propose trees.

What a drafter of chosen tokens proposes, and how sure it is, differs from one cycle to the next. So
its tree is made first and weighed then. A node is worth its place in the pass if the chance that it
is reached and accepted brings more tokens than the seconds it adds would bring at the usual rate;
the chance is judged by what became of nodes like it. A pass of the draft, where drafting takes
passes, is worth its time by the same measure: if what the nodes that it may find are expected to
bring, beside those there are, is more than its seconds and their verification would. Where V is
steep that leaves a short chain or nothing, where it is flat a wide tree: there is no other rule.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.acceptance import Calibrated, Calibration, Followed
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
    reaches,
)
from spec_cpu.draft.tree import TokenTree

_GAIN = 0.05  # tokens that a draft must be expected to bring beyond its price
_KEPT = 0.98  # of the record of tokens and seconds, from one cycle to the next
_RECORD = 16.0  # plain steps that the record begins with
_LEARNT = 0.2  # of a new observation, where a mean is kept
_IDLE = 24  # cycles without a draft after which it is said why
_PRIOR = 0.6  # the chance that the best token after a node is accepted, before any was seen
_PATIENCE = 8  # cycles in a row that drafting must not be expected to pay before it is given up
_STRETCH = 4.0  # cycles with a draft in a row, before any were seen
_DOUBT = 1.1  # how much longer than foretold a cycle with a draft may take
_AHEAD = 4  # passes of the draft that are thought ahead


class Weigher:
    """Chooses how much of a tree to draft, and how many of its nodes to verify.

    Once a cycle: `next_k`, `worth_pass` before each pass of a draft or `worth_at_once` before its
    only one, `worth`, `observe`.

    A cycle is worth E - rate * seconds: tokens expected, less what its seconds would bring at the
    usual rate. Taking the best n of each cycle at the rate that this itself leads to is the best
    there is for the sum of all (Dinkelbach 1967, "On Nonlinear Fractional Programming").
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
        free: bool = False,
        calibration: Calibrated | None = None,
    ) -> None:
        """Weigh trees of up to `k_max` nodes; arguments and errors as for `Scheduler`.

        Args:
            free: the drafter takes no passes: those that `costs` tells of are another's.
            calibration: what it makes of the drafter's chances; default: `Calibration`.
        """
        if not 0 <= k_max < len(costs.passes):
            raise ValueError(f"k must be from 0 to {len(costs.passes) - 1}, not {k_max}")
        self._k_max = k_max
        self._others = costs if free else None  # of a drafter that takes passes
        if free:
            costs = replace(costs, draft_step=0.0, draft_catch_up=0.0, draft_read=0.0)
        self._costs = costs
        self._pace = Pace(costs)
        self._repeatable = repeatable
        self._calibration = calibration or Calibration()
        self.hopeless = never_pays(costs.at(0), MARGIN, k_max)
        self._n = 0  # nodes in the last pass
        self._steady = True  # was its width one that others have, too?
        self._missed = 0  # tokens since the drafter that takes passes drafted
        self.promise = 0.0
        self._fresh = True
        self._idle = 0  # cycles since nodes were verified
        self._rebuild = costs.rebuild
        self._stretch = _STRETCH  # cycles with nodes in a row, on average
        self._drafted = 0  # such cycles in the present stretch
        self._last_plain = 0.0  # seconds
        self._look = 0.0  # seconds that looking up takes
        self._purse = Purse(self._plain, share, advance)
        self._bearable = 0  # nodes that it bears
        self._tokens, self._seconds = _RECORD, _RECORD * self._plain
        self._quiet = 0  # plain steps after others, not accounted for yet
        self._looked = 0.0  # seconds of looking up in them
        # Of a draft that takes passes:
        self._room = 0  # nodes that there is room for in this cycle
        self._most = 0  # that may be lost, too
        self._drafting = 0.0  # seconds of its passes in this cycle
        self._followed = Followed()
        self._brought, self._took = self._first_guess()  # tokens of such a cycle, and its seconds
        self._on = False
        self._doubt = 0  # cycles since it was expected to pay
        self._nap = 0  # plain steps left until the choice is weighed again

    @property
    def reason(self) -> str | None:
        """Why nothing is drafted, in a person's words; None while something is."""
        if self.hopeless or never_pays(self._costs, 1.0, self._k_max):
            return HOPELESS
        if self._idle + self._quiet < _IDLE:
            return None
        if self._costs.draft_step:
            return f"too few tokens are accepted ({self._followed.chance:.0%})"
        return "the text does not repeat itself enough"

    def next_k(self, room: int) -> int:
        """Nodes to propose: no more than can be tried, for each takes a moment to look up."""
        # The first pass is one that others can be compared with.
        self._drafting = 0.0
        if self.hopeless or self._fresh or self._nap:
            return 0
        self._room = min(self._k_max, room)
        if self._costs.draft_step:
            self._account()
        price = self._look + self._step(1, first=True)
        # In quiet steps the purse only fills, slowly; after a tree `_quiet` is 1 at most.
        if self._costs.draft_step or self._quiet < 2:
            self._bearable = self._affordable(self._k_max, price)
        self._most = max(0, min(self._bearable, self._room))
        if self._costs.draft_step:
            # What is never tried is not known: it promises more the longer it was left out.
            self.promise = (1.0 + AGING * self._missed) * self._brought / self._took
            if self._most == 0 < self._room:
                self._rest(1, price)
        return self._most

    def _first_guess(self) -> tuple[float, float]:
        """Tokens and seconds of a cycle that verifies the best token, before any did."""
        return 1.0 + _PRIOR, self._cycle(min(1, self._k_max), 1.0 + _PRIOR) + self._costs.draft_step

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool:
        """A chosen token, if there is room: `worth` may still take it back."""
        return True

    def worth_pass(self, chances: Sequence[float], layer: Sequence[float]) -> int:
        """How many nodes of a growing tree to extend in another pass of the draft; 0: none.

        It is thought ahead along the best token after each of them, a few passes deep.

        Args:
            chances: that each node there is is reached and accepted, best first; none before the
                first pass.
            layer: the same of those that may be extended, best first; before the first pass 1, of
                the text itself.
        """
        w = self._worth_feeding(layer)
        first = not chances
        passes = (self._step(w, first=first), self._step(w, first=False))
        found = [chances]
        for depth in range(1, 1 + min(_AHEAD, self._most)):
            usual = self._followed.chance**depth
            found.append([*found[-1], *(usual * chance for chance in layer[:w])])
        return w if self._drafts(found, passes, first=first) else 0

    def worth_at_once(self, chances: Sequence[float]) -> bool:
        """Whether a draft that takes one pass is worth it.

        Args:
            chances: that each of its nodes is reached and accepted, before it is known which
                tokens they are.
        """
        step = self._step(1, first=True)
        return self._drafts([[], chances], (step, step), first=True)

    def _drafts(
        self, found: Sequence[Sequence[float]], passes: tuple[float, float], *, first: bool
    ) -> bool:
        """Make the next pass of the draft, or not.

        Args:
            found: the chances of the nodes there are after 0, 1, 2, ... more passes.
            passes: seconds of the next one, and of each after it.
            first: in this cycle.
        """
        step = passes[0]
        most = self._affordable(self._most, self._drafting + step)
        pays = most > 0 and self._pays(found, passes, most)
        if not pays and (most == 0 or not first or not self._probes(found, passes, most)):
            return False
        if pays:
            self._on, self._doubt = True, 0
        self._drafting += step
        return True

    def _probes(
        self, found: Sequence[Sequence[float]], passes: tuple[float, float], most: int
    ) -> bool:
        """Whether to draft though it is not expected to pay: to find out whether it would."""
        if self._on:
            self._doubt += 1
            if self._doubt < _PATIENCE:
                return True
            # What drafting earned is not spent on finding out when it will earn again.
            self._purse.forget_gains(self._plain)
            self._on = False
            return False
        if self._pays(found, passes, self._room):
            # It would, but for the purse, which a probe would keep from filling.
            self._rest(most + 1, passes[0])
            return False
        return True

    def _rest(self, n: int, drafting: float) -> None:
        """Nap until the purse bears a pass over `n` nodes after so many seconds of drafting."""
        if self._n == 0:
            loss = self._loss(min(n, self._k_max)) + drafting
            self._nap = min(NAP, self._purse.steps_until(loss, self._plain))

    def acceptance(self, confidence: float) -> float:
        """The chance that a node is accepted of which the drafter is so sure, if it is reached."""
        return self._calibration.acceptance(confidence)

    def worth(self, tree: TokenTree) -> int:
        """How many nodes of `tree`, whose first are the best, the target should score."""
        if not tree.tokens:
            self.promise = 1.0 / self._plain
            return 0
        self._account()
        expected = [*accumulate(reach := reaches(tree, self.acceptance), initial=1.0)]
        self._followed.learn(tree.parents, reach)
        del expected[self._affordable(len(tree), self._drafting) + 1 :]
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
        first, self._fresh = self._fresh, False
        if self.hopeless:
            return
        if outcome.depth is not None and self._pace.move(outcome.depth):
            self._costs = self._corrected()
        n, tokens = outcome.drafted, outcome.accepted + 1
        quiet = outcome.own and not (n or self._n or self._drafting or first)
        if self._nap:
            self._nap -= 1
        if quiet:
            self._pass_over(outcome)
            return
        self._account()
        changed = n != self._n
        seconds = self._pass(n) + tokens * self._costs.row + self._drafting + self._recovery(n)
        if self._others and not outcome.own:
            seconds += self._others.drafting(n) + self._others.reading(self._missed)
        looking = 0.0 if self._repeatable or self._drafting else outcome.seconds_draft
        self._look += _LEARNT * (looking - self._look)
        alone = tokens * self._plain + self._drafting  # what it answers for if another drafted
        self._book(tokens, seconds, seconds if outcome.own else alone, looking)
        if self._drafting:
            brought = tokens if outcome.own else 1
            took = seconds if outcome.own else self._plain + self._drafting
            self._brought += _LEARNT * (brought - self._brought)
            self._took += _LEARNT * (took - self._took)
        self._calibration.count(outcome.tried)
        self._idle = 0 if n and outcome.own else self._idle + 1
        self._steady = n == 0 or not outcome.own
        if not (self._repeatable or first):  # the first pass follows the reading of the prompt
            self._correct(outcome, changed)
        resumed = not outcome.own if self._others else self._drafting > 0.0
        self._missed = 0 if resumed else self._missed + tokens
        if n:
            self._drafted += 1
        elif self._drafted:
            self._stretch += _LEARNT * (self._drafted - self._stretch)
            self._drafted = 0
        self._n = n

    def _book(self, tokens: int, seconds: float, own: float, looking: float = 0.0) -> None:
        """Count a cycle. `own`: seconds that this drafter's purse answers for, as `looking`."""
        self._purse.settle(self._plain, tokens, own + looking)
        self._tokens = _KEPT * self._tokens + tokens
        self._seconds = _KEPT * self._seconds + seconds

    def _pass_over(self, outcome: Outcome) -> None:
        """A plain step after another: most of what it tells can wait."""
        self._quiet += 1
        self._calibration.count(outcome.tried)
        if not self._repeatable:
            self._looked += outcome.seconds_draft
            self._learn_plain(outcome.seconds_target)
        if self._quiet == NAP:
            self._account()

    def _account(self) -> None:
        """Book the quiet steps since the last time."""
        if not self._quiet:
            return
        looked = self._looked / self._quiet
        for _ in range(self._quiet):
            self._look += _LEARNT * (looked - self._look)
            self._book(1, self._plain, self._plain, looked)
        self._missed += self._quiet
        self._idle += self._quiet
        self._quiet, self._looked = 0, 0.0

    def _learn_plain(self, seconds: float) -> None:
        """What a plain step after another took."""
        self._last_plain = seconds
        self._pace.plain(seconds)

    def _correct(self, outcome: Outcome, changed: bool) -> None:
        """Learn what passes take, those of new widths as well: here widths hardly ever repeat."""
        n, seconds = outcome.drafted, outcome.seconds_target
        if self._drafting:
            before = self._costs.draft_catch_up + self._costs.reading(self._missed)
            steps = (self._drafting - before) / self._costs.draft_step
            self._pace.draft(outcome.seconds_draft, steps, self._missed)
        if n or changed:
            self._learn_pass(n, seconds, changed)
        else:
            self._learn_plain(seconds)
        self._costs = self._corrected()

    def _learn_pass(self, n: int, seconds: float, changed: bool) -> None:
        """What a pass over n nodes took, or the first plain step after one."""
        if n == 0 and self._last_plain:
            extra = min(max(0.0, seconds / self._last_plain - 1.0), 1.0) * self._costs.passes[0]
            self._rebuild += _LEARNT * (extra - self._rebuild)
        self._pace.target(max(0.0, seconds - changed * self._rebuild), n + 1)

    def _corrected(self) -> Costs:
        return self._pace.corrected(self._rebuild)

    def _worth_feeding(self, layer: Sequence[float]) -> int:
        """How many of `layer`, one at least, bring more than feeding them along takes."""
        slope = (self._costs.passes[self._k_max] - self._costs.passes[0]) / max(1, self._k_max)
        price = self._rate * (self._costs.draft_read + slope)
        return max(1, sum(chance * self._followed.chance > price for chance in layer))

    def _pays(
        self, found: Sequence[Sequence[float]], passes: tuple[float, float], most: int
    ) -> bool:
        """Do 1, 2, ... more passes of the draft bring more than their time would?

        Args:
            found, passes: as for `_drafts`.
            most: nodes that may be verified.
        """
        # In plain Python: NumPy takes longer over so few numbers.
        verifying = [self._cycle(n, 0.0) for n in range(min(most, len(found[-1])) + 1)]
        row, (step, later) = self._costs.row, passes
        ways: list[list[tuple[float, float]]] = []  # by passes more: tokens and seconds by nodes
        for more, chances in enumerate(found):
            drafting = step + (more - 1) * later if more else 0.0
            best = sorted(chances, reverse=True)[:most]
            tokens = accumulate(best, initial=1.0)
            ways.append(
                [
                    (t, (s + t * row + drafting) * (_DOUBT if n else 1.0))
                    for n, (t, s) in enumerate(zip(tokens, verifying, strict=False))
                ]
            )
        fastest = max(t / s for way in ways for t, s in way)
        rate = min(self._rate, max(fastest, 1.0 / self._plain))
        now, *then = (
            max(t - rate * s - _GAIN * (n > 0) for n, (t, s) in enumerate(way)) for way in ways
        )
        return max(then) > now

    @property
    def _plain(self) -> float:
        return self._costs.passes[0] + self._costs.row

    @property
    def _rate(self) -> float:
        """Tokens a second, as things go; plain decoding's at least."""
        return max(1.0 / self._plain, self._tokens / self._seconds)

    def _step(self, nodes: int, *, first: bool) -> float:
        """Seconds of a pass of the draft over `nodes` nodes; the first takes in what it missed."""
        more = (nodes - 1) * self._costs.draft_read
        before = self._costs.draft_catch_up + self._costs.reading(self._missed)
        return self._costs.draft_step + more + first * before

    def _affordable(self, most: int, drafting: float) -> int:
        """Nodes that may be verified, up to `most`, after so many seconds of drafting."""
        beside = self._costs.rebuild + self._beside(1)
        bearable = self._purse.seconds - drafting - beside
        n = min(most, max(0, bisect_right(self._costs.passes, bearable) - 1))
        # That of the last width needs no new graph.
        n += n + 1 == self._n <= most and self._purse.bears(self._loss(self._n) + drafting)
        return n

    def _pass(self, n: int) -> float:
        return self._costs.passes[n] + (n != self._n) * self._costs.rebuild

    def _cycle(self, n: int, tokens: float) -> float:
        """Seconds of a cycle with n nodes, that of going back to a steady width among them.

        Only the rows on the accepted path are sampled from: one a token.
        """
        change = self._costs.rebuild * (1 + (n > 0 and self._steady)) * (n != self._n)
        change += self._recovery(n)
        if self._n == 0 and self._costs.draft_step:
            change /= self._stretch  # what is looked up comes and goes; a draft that pays goes on
        return self._costs.passes[n] + change + tokens * self._costs.row

    def _loss(self, n: int) -> float:
        """Seconds behind plain decoding if all n are rejected."""
        return self._pass(n) + self._beside(n)

    def _beside(self, n: int) -> float:
        """Seconds of a loss beside the pass over n nodes itself."""
        return self._costs.rebuild + self._recovery(n) + self._costs.row - self._plain

    def _recovery(self, n: int) -> float:
        """Seconds that plain steps will lose because of n nodes.

        All of it counts after one plain step already, though by then little was recovered: it is
        what `cost_measure` found after many.
        """
        return self._costs.recovery if n and not self._n else 0.0
