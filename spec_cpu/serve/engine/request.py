"""What is asked of the engine, and what it tells of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from spec_cpu import defaults
from spec_cpu.answer.stats import Stats
from spec_cpu.answer.steps import Finish
from spec_cpu.errors import SpecCpuError
from spec_cpu.sampling.logprobs import Logprobs
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.text.streaming import Origin, Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answer that is wanted.

    Attributes:
        tokens: the prompt as the model reads it; at least one.
        stops: strings that end the answer, the template's own among them.
        max_tokens: None: as many as the context has room for.
        seed: of the random draws; None: a new one.
        references: texts as tokens that drafts are looked up in, too (predicted outputs).
        logprobs: how many of the likeliest tokens to name at each position, with log
            probabilities; None: no log probabilities.
        alternatives: tell of the drafts that were not taken, too?
    """

    tokens: Sequence[int]
    stops: Sequence[str] = ()
    max_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    rule: str = defaults.RULE
    ignore_eos: bool = False
    seed: int | None = None
    references: Sequence[Sequence[int]] = ()
    logprobs: int | None = None
    alternatives: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer.

    Attributes:
        origin: how it came. `sources`: who proposed it; empty where nobody did.
        alternatives: what else was drafted at its place, with the chance of each; most likely
            first. Only where they were asked for.
        logprobs: only where they were asked for.
    """

    id: int
    origin: Origin
    sources: Sequence[str] = ()
    alternatives: Sequence[tuple[int, float]] = ()
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The prompt is being read: `done` of `total` tokens are in the cache."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What a cycle added to an answer.

    Attributes:
        pieces: text that may be shown; it can lag behind the tokens.
        drafted, accepted: nodes that were scored for it in this cycle, and how many stayed.
    """

    pieces: Sequence[Piece]
    tokens: Sequence[Token]
    drafted: int
    accepted: int

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer's last event: it is whole, or was cut by length or by being cancelled.

    Attributes:
        seed: of its draws. `reused_tokens`: of the prompt, that were in the cache already.
    """

    finish: Finish
    seed: int
    prompt_tokens: int
    reused_tokens: int
    stats: Stats


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer's last event: it cannot go on."""

    error: SpecCpuError


Event: TypeAlias = Reading | Delta | Ended | Failed
"""In order: any number of Reading, any number of Delta, then Ended or Failed."""

Deliver: TypeAlias = Callable[[Event], None]
"""Called in the engine's thread for each event: it must not wait for anything."""
