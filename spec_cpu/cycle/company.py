"""Texts that share passes: the nodes of a pass are handed out over all of them.

A node goes where its chance is highest, whoever's text that is, as long as it brings more tokens
than the same seconds bring otherwise: the rule for one text (see `policy`), over the nodes of all.
With one text it is that text's own. The more texts there are, the wider is a pass without any
draft, and the more each node adds to it on a CPU: then few are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle, Text, apart
from spec_cpu.cycle.drafting import Proposal
from spec_cpu.cycle.pace import CostsInRun, Record
from spec_cpu.cycle.policy import Beside, Policy


class Company:
    """What decides how the nodes of passes are shared, and what of them others leave to a text."""

    def __init__(self, costs: Costs) -> None:
        """`costs`: of passes over one text; those over several are taken to cost the same."""
        self._in_run = CostsInRun(costs)
        self._size = 1  # texts in the latest cycle
        self._width = 0  # rows of the latest pass
        self._own: dict[int, int] = {}  # of them by text
        self._record = Record(1.0, costs.passes[0] + costs.row)

    def begin(self, texts: Sequence[Text]) -> None:
        """A cycle of these texts begins: tell their policies what others leave to them."""
        alone = len(texts) == 1
        if len(texts) != self._size:
            self._size = len(texts)
            plain = self._costs.passes[self._last(self._size)] + self._size * self._costs.row
            self._record = Record(self._size, plain)
        for text in texts:
            # A pass over as many rows of as many sequences as the last one needs no new graph.
            text.paths = None if alone else 1
            policy = text.drafting.policy
            if isinstance(policy, Policy):
                policy.beside(None if alone else self._left(text, len(texts)))

    @property
    def _costs(self) -> Costs:
        return self._in_run.now

    def _last(self, rows: int) -> int:
        """Where `Costs.passes` has a pass over so many rows, or over the most that are known."""
        return min(rows, len(self._costs.passes)) - 1

    def _left(self, text: Text, size: int) -> Beside:
        """What a pass costs `text`: a share of a plain one, and what its own nodes add to it.

        Changes of width are everybody's: `share` counts them.
        """
        costs = self._costs
        passes = costs.passes
        rows = self._own.get(id(text), 1)
        others = min(max(self._width - rows, size - 1), len(passes) - 1)
        share = passes[self._last(size)] / size - passes[others]
        own = [share + seconds for seconds in passes[others:]]
        own[1:] = [seconds + self._leaving(size) for seconds in own[1:]]
        own += [own[-1]] * (len(passes) - len(own))
        return Beside(
            replace(costs, passes=own, deepens=(), rebuild=0.0, recovery=0.0),
            self._record.rate,
        )

    def _leaving(self, plain: int) -> float:
        """Seconds of leaving the width of a plain pass, if that was the last, and of the return."""
        return 2.0 * self._costs.rebuild if self._width <= plain else 0.0

    def share(self, texts: Sequence[Text], proposals: Sequence[Proposal]) -> None:
        """Cut the trees of all texts to the nodes that are worth verifying. See `decode.Share`."""
        if len(texts) == 1 or not all(isinstance(one.drafting.policy, Policy) for one in texts):
            apart(texts, proposals)
            return
        drawn = sum(len(proposal.tree) for proposal in proposals)
        found = [
            [(-chance, i) for chance in proposal.chances] for i, proposal in enumerate(proposals)
        ]
        best = [*merge(*found)]
        n = self._worth(len(texts), drawn, [-chance for chance, _ in best])
        for i, proposal in enumerate(proposals):
            proposal.cut(sum(whose == i for _, whose in best[:n]))

    def _worth(self, plain: int, drawn: int, chances: Sequence[float]) -> int:
        """How many nodes to verify of those with such chances, best first.

        Args:
            plain: rows without any draft. `drawn`: that were drawn beside.
        """
        costs, rate = self._costs, self._record.rate
        values = []
        for width, tokens in enumerate(accumulate(chances, initial=0.0), plain + drawn):
            if width > len(costs.passes):
                break
            changes = costs.rebuild if width not in (plain, self._width) else 0.0
            leaves = self._leaving(plain) if width > plain else 0.0
            values.append(tokens - rate * (costs.passes[width - 1] + (leaves or changes)))
        return values.index(max(values)) if values else 0

    def observe(self, texts: Sequence[Text], cycles: Sequence[Cycle]) -> None:
        """Learn from a cycle of these texts."""
        width = sum(1 + cycle.drafted for cycle in cycles)
        if len(texts) > 1:
            seconds = sum(cycle.seconds.target for cycle in cycles)
            if width <= len(self._costs.passes):
                self._in_run.target(seconds, width, changed=width != self._width)
            self._in_run.move(sum(cycle.context for cycle in cycles) // len(cycles))
            tokens = sum(len(cycle.tokens) for cycle in cycles)
            self._record.add(tokens, sum(cycle.seconds.total for cycle in cycles))
        self._width = width
        self._own = {id(text): 1 + one.drafted for text, one in zip(texts, cycles, strict=True)}
