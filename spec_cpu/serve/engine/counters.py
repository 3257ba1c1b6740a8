"""What an engine did since it began."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.answer.steps import Step
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle
from spec_cpu.serve.engine.answer import Answer
from spec_cpu.serve.engine.engine import Share, State

_LEARNT = 0.1  # of a new observation, where a mean is kept
_FIRST = 10.0  # seconds of an answer, before any came to its end


class Counters:
    """Sums over cycles, and the shares of the latest one."""

    def __init__(self, slots: int, context: int, costs: Costs | None) -> None:
        """Of an engine of so many slots of `context` tokens each; `costs`: of its passes."""
        self._slots, self._context, self._costs = slots, context, costs
        self._shares: list[Share] = []
        self._tokens = self._drafted = self._accepted = self._cycles = 0
        self._by_source: dict[str, tuple[int, int]] = {}
        self._seconds = self._plain = 0.0
        self._answer = _FIRST

    def add(
        self,
        answers: Sequence[Answer],
        cycles: Sequence[Cycle],
        steps: Sequence[Step | None],
        seconds: float,
    ) -> None:
        """A cycle of these answers took so long, and became these steps; None: it failed."""
        self._cycles += 1
        self._shares = []
        tokens = sum(len(step.tokens) for step in steps if step is not None)
        for answer, cycle, step in zip(answers, cycles, steps, strict=True):
            self._shares.append(Share(answer.number, 1 + cycle.drafted, cycle.drafted))
            self._drafted += cycle.drafted
            self._accepted += cycle.accepted
            for name, part in cycle.parts.items():
                drafted, accepted = self._by_source.get(name, (0, 0))
                self._by_source[name] = (drafted + part.drafted, accepted + part.accepted)
            if step is not None and step.finish:
                self._answer += _LEARNT * (answer.stats.decode - self._answer)
        self._tokens += tokens
        self._seconds += seconds
        if self._costs is not None:
            self._plain += self._plain_seconds(cycles, tokens)

    def _plain_seconds(self, cycles: Sequence[Cycle], tokens: int) -> float:
        """What plain decoding would take for so many tokens of as many texts."""
        assert self._costs is not None
        n = min(len(cycles), len(self._costs.passes))
        depth = sum(cycle.context for cycle in cycles) // len(cycles)
        a_step = self._costs.pass_at(n, depth) / n + self._costs.row
        return a_step * tokens

    def seconds_until_room(self, waiting: int) -> float:
        """After how long one of those who wait will probably be taken up."""
        return self._answer * (1 + waiting / self._slots)

    def state(self, active: int, waiting: int) -> State:
        """With so many answers under way, and so many that wait."""
        costs = self._costs
        widths = range(1, 1 + len(costs.passes)) if costs else ()
        return State(
            slots=self._slots,
            active=active,
            waiting=waiting,
            verify=[costs.verify(n) for n in widths] if costs else (),
            width=sum(share.rows for share in self._shares),
            shares=self._shares,
            tokens=self._tokens,
            drafted=self._drafted,
            accepted=self._accepted,
            cycles=self._cycles,
            by_source=dict(self._by_source),
            context=self._context,
            speedup=self._plain / self._seconds if self._plain and self._seconds else None,
        )
