"""What a drafter proposes."""

from __future__ import annotations

from dataclasses import dataclass, field

from spec_cpu.sampling import Distribution


@dataclass(slots=True)
class TokenTree:
    """Proposed tokens, each the child of the one before: a chain.

    Attributes:
        tokens: the proposed ids, nearest first; none means a plain step.
        q: the distribution each was drawn from; None if they were not drawn but chosen (argmax),
            which makes q a point mass on each.
    """

    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] | None = None

    def __len__(self) -> int:
        return len(self.tokens)
