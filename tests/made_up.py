"""Cycles and answers that were made up, and what their passes cost: no model, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle, Seconds
from spec_cpu.cycle.drafting import Part

PLAIN, ROW, LOOKING = 0.005, 0.0004, 0.0002
COSTS = Costs(
    tuple(PLAIN * (1 + 0.2 * n) for n in range(9)),
    draft_step=0.001,
    draft_catch_up=0.0,
    rebuild=0.0,
    row=ROW,
    depth=100,
    deepens=tuple(1e-6 * (n + 1) for n in range(9)),
)


def measured(*_what: object, max_width: int, **_how: object) -> Costs:
    """In place of `costs.measure.measure`, which takes seconds: passes that cost little."""
    passes = tuple(1 + 0.02 * n for n in range(max_width))
    return Costs(passes, draft_step=0.05, draft_catch_up=0.0, rebuild=0.0, row=0.0)


def cycle(drafted: int, context: int, pace: float = 1.0, *, late: float = 0.0) -> Cycle:
    """Half of the draft is accepted. `late`: seconds that its pass takes longer."""
    accepted = drafted // 2
    target = pace * COSTS.pass_at(drafted + 1, context) + late
    draft, sample = LOOKING + 0.002 * drafted, pace * ROW * (accepted + 1)
    return Cycle(
        tokens=[0] * (accepted + 1),
        accepted=accepted,
        drafted=drafted,
        depth=drafted,
        context=context,
        overlaps=[1.0] * (accepted + (drafted > 0)),
        rows=accepted + 1,
        seconds=Seconds(draft, target, sample),
        parts={"model": Part(drafted, accepted, accepted + 1)} if drafted else {},
    )


def answer(drafted: Sequence[int], pace: float = 1.0, late: float = 0.0) -> list[Cycle]:
    """Cycles of an answer behind 100 tokens; `late`: the first after another width."""
    cycles: list[Cycle] = []
    context, last = 100, None
    for n in drafted:
        cycles.append(cycle(n, context, pace, late=late * (n != last)))
        context, last = context + n // 2 + 1, n
    return cycles
