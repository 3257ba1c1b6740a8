"""What a drafter proposes."""

from __future__ import annotations

from dataclasses import dataclass, field

from spec_cpu.sampling import Distribution


@dataclass(slots=True)
class TokenTree:
    """Proposed tokens, each the child of the one before: a chain.

    Attributes:
        tokens: the proposed ids, nearest first; none means a plain step.
        confidence: the drafter's own largest probability at each of them; empty if it has none.
        q: the distribution each was drawn from; None if they were not drawn but chosen (argmax),
            which makes q a point mass on each.
    """

    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] | None = None
    confidence: list[float] = field(default_factory=list)

    def append(self, token: int, q: Distribution | None, confidence: float) -> None:
        """Add a token; `q` only in a tree whose tokens are drawn."""
        self.tokens.append(token)
        self.confidence.append(confidence)
        if self.q is not None and q is not None:
            self.q.append(q)

    def __len__(self) -> int:
        return len(self.tokens)
