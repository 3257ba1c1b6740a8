"""What every schedule offers and is told, and what several of them go by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spec_cpu.costs.costs import Costs
from spec_cpu.draft.tree import TokenTree

MARGIN = 1.25  # how wrong costs may be that rule drafting out for good
HOPELESS = "no draft pays on this machine, even if every token were accepted"
NAP = 16  # plain steps that are taken without weighing the choice again, at most
AGING = 0.01  # that a record promises more for each token since: what is never tried is not known


class Schedule(Protocol):
    """What decides how many tokens are drafted in a cycle. See `Scheduler`, `Weigher`, `Pinned`.

    `next_k` comes before drafting, `worth` after it: how many of the first nodes of a tree of
    chosen tokens the target should score. In between a drafter asks `worth_another` before each
    token that it draws, or `worth_pass` before each of its passes where it grows a tree, or
    `worth_at_once` where it takes one pass. `observe`
    ends every cycle, whoever drafted in it.

    Attributes:
        by_confidence: does it ask how sure the draft is? Where not, a drafter need not work it out.
        hopeless: will it never draft, whatever is accepted?
        promise: tokens a second that the cycle should bring with what `next_k`, or `worth` after
            it, said last; where k is pinned, tokens. For comparing several drafters' schedules.
    """

    by_confidence: bool
    hopeless: bool

    @property
    def promise(self) -> float: ...

    @property
    def reason(self) -> str | None: ...

    def next_k(self, room: int) -> int: ...

    def worth_another(self, drafted: int, reach: float, confidence: float) -> bool: ...

    def worth_pass(self, chances: Sequence[float], layer: Sequence[float]) -> int: ...

    def worth_at_once(self, chances: Sequence[float]) -> bool: ...

    def acceptance(self, confidence: float) -> float: ...

    def worth(self, tree: TokenTree) -> int: ...

    def observe(self, outcome: Outcome) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cycle.

    Attributes:
        drafted: tokens that the target scored beside the last one of the text.
        accepted: how many of them stayed.
        seconds_draft: all of the draft's work.
        seconds_target: the target's pass over `drafted` + 1 tokens.
        tried: of each token whose parent stayed, how sure the draft was of it, and whether it
            stayed, or would have.
        own: False if another drafter drafted the tokens. `seconds_draft` and `tried` are still
            this one's.
        depth: tokens of context before the pass; None: as before.
    """

    drafted: int
    accepted: int
    seconds_draft: float
    seconds_target: float
    tried: Sequence[tuple[float, bool]] = ()
    own: bool = True
    depth: int | None = None


def never_pays(costs: Costs, margin: float, k_max: int) -> bool:
    """Would no draft of up to `k_max` tokens pay even if all were accepted?

    Args:
        margin: cycles are taken to be so many times as cheap.
    """
    plain = costs.cycle(0, changed=False)
    return all(
        margin * (k + 1) * plain <= costs.cycle(k, changed=False) for k in range(1, k_max + 1)
    )


def reaches(tree: TokenTree, acceptance: Callable[[float], float]) -> list[float]:
    """The chance of each node that it and all before it on its path are accepted.

    Args:
        acceptance: of a node that is reached, from the drafter's confidence in it.
    """
    found: list[float] = []
    for parent, confidence in zip(tree.parents, tree.confidence, strict=True):
        found.append((1.0 if parent < 0 else found[parent]) * acceptance(confidence))
    return found


def check_outcome(outcome: Outcome, k_max: int) -> None:
    """Raises ValueError unless 0 <= accepted <= drafted <= `k_max`."""
    if not 0 <= outcome.accepted <= outcome.drafted <= k_max:
        raise ValueError(
            f"{outcome.accepted} of {outcome.drafted} drafted tokens accepted: cannot be"
        )
