"""The engine's face: what other threads may ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spec_cpu.errors import SpecCpuError
from spec_cpu.llama.context import Rows
from spec_cpu.llama.model import Model
from spec_cpu.serve.engine.request import Deliver, Request


class QueueFullError(SpecCpuError):
    """As many requests wait as may.

    Attributes:
        retry_after: seconds after which one of them will probably have been taken up.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("the server is busy with as many requests as it takes: try again later")
        self.retry_after = retry_after


class Handle(Protocol):
    """A request that was taken.

    Attributes:
        id: its number, as in `State.shares`.
        place: its place in the queue, from 1 on; 0 once it was taken up.
    """

    @property
    def id(self) -> int: ...

    @property
    def place(self) -> int: ...

    def cancel(self) -> None:
        """End it within a cycle: `Ended` with finish "interrupted" follows. A second call does
        nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """What one conversation has of the latest pass: `rows`, of which `drafted` were drafted."""

    id: int
    rows: int
    drafted: int


@dataclass(frozen=True, slots=True)
class State:
    """What the engine is doing, for people and for monitoring.

    Attributes:
        slots: conversations at most at a time. `active`: under way. `waiting`: in the queue.
        verify: V(n): a pass over n rows, in passes over one, for n = 1, 2, ...; empty: not known.
        width: rows of the latest pass. `shares`: who has them.
        tokens, drafted, accepted, cycles: since the start; `by_source`: drafted and accepted.
        context: tokens that one conversation may have.
        speedup: tokens a second so far, over those of plain decoding of as many conversations
            at a time; None: not known.
    """

    slots: int
    active: int
    waiting: int
    verify: Sequence[float] = ()
    width: int = 0
    shares: Sequence[Share] = ()
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    cycles: int = 0
    by_source: dict[str, tuple[int, int]] = field(default_factory=dict)
    context: int = 0
    speedup: float | None = None


class Engine(Protocol):
    """Answers requests from any thread. See `serve.engine.loading` to make one.

    Attributes:
        model: the target. Its vocabulary and its template may be used from any thread while the
            engine is open.
    """

    @property
    def model(self) -> Model: ...

    @property
    def state(self) -> State: ...

    def submit(self, request: Request, deliver: Deliver) -> Handle:
        """Answer `request`, as soon as there is a slot for it.

        Raises:
            UsageError: the request makes no sense.
            ContextError: the prompt does not fit into a conversation's context.
            QueueFullError: too many wait already.
        """
        ...

    def embed(self, tokens: Sequence[int]) -> Rows:
        """The mean of the final hidden states of `tokens`: float32, (n_embd,). Waits for it.

        Raises:
            UsageError: this model gives none.
            ContextError: they do not fit.
        """
        ...

    def close(self, grace: float = 0.0) -> None:
        """Take no more requests, end what is under way (after `grace` seconds at most), free all.

        A second call, from another thread, ends them at once.
        """
        ...
