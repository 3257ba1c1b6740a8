"""What was asked of one answer, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec_cpu.arguments import (
    FLAG,
    FUNCTION,
    WHOLE,
    Kind,
    check_drafted,
    check_prompt,
    check_seed,
    one_of,
)
from spec_cpu.cycle.verify import RULES
from spec_cpu.errors import UsageError
from spec_cpu.progress import Progress
from spec_cpu.sampling.pipeline import SamplingParams

SAMPLING = Kind("SamplingParams", lambda value: isinstance(value, SamplingParams))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The arguments of `Session.generate`, with the session's own where none were given.

    Raises:
        UsageError: one of a wrong type or out of range.
    """

    prompt: str | None
    max_tokens: int
    raw: bool
    special: bool
    stops: Sequence[str]
    ignore_eos: bool
    sampling: SamplingParams
    rule: str
    k: int | None
    seed: int | None
    repeatable: bool
    progress: Progress | None

    def __post_init__(self) -> None:
        if self.prompt is not None:
            check_prompt(self.prompt)
        WHOLE.check(max_tokens=self.max_tokens)
        FLAG.check(raw=self.raw, special=self.special, ignore_eos=self.ignore_eos)
        FLAG.check(repeatable=self.repeatable)
        if self.prompt is None and self.raw:
            raise UsageError("only an answer of the conversation can go on: leave out `raw`")
        SAMPLING.check(sampling=self.sampling)
        FUNCTION.check(optional=True, progress=self.progress)
        check_drafted(self.k)
        check_seed(self.seed)
        one_of("rule", self.rule, RULES)
        if self.max_tokens < 1:
            raise UsageError(f"`max_tokens` must be at least 1, not {self.max_tokens}")

    @property
    def exact(self) -> bool:
        """Is the text distributed as the target's own? At temperature 0 every rule sees to that."""
        return RULES[self.rule].exact or self.sampling.greedy

    @property
    def repeats(self) -> bool:
        """Is it to be the same again, whatever was asked before?"""
        return self.seed is not None and self.repeatable
