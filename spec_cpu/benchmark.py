"""Plain and speculative decoding of the same prompts in turn, and what the pairs say."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spec_cpu.errors import UsageError
from spec_cpu.session import Session
from spec_cpu.stats import Stats

_RESAMPLES = 2000
OVERALL = "overall"

BenchProgress = Callable[[str, int, int | None], None]
"""Told (category, prompts done, prompts in all)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a benchmark asks: its kind, and the user's turns."""

    category: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt decoded plainly and with the draft."""

    category: str
    plain: Stats
    fast: Stats

    @property
    def ratio(self) -> float:
        """Tokens a second with the draft over those without."""
        return (self.fast.tokens_per_second or 0.0) / (self.plain.tokens_per_second or 1.0)


@dataclass(frozen=True, slots=True)
class Speedup:
    """The median of pairwise ratios, and the bootstrap's 95 % interval of it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Result:
    """A category's pairs, summed up."""

    prompts: int
    tokens_per_second: float
    plain_tokens_per_second: float
    speedup: Speedup
    alpha: float | None
    alpha_exact: float | None
    accepted_by_position: list[float]
    tokens_per_cycle: float | None
    k: int
    c: float | None
    speedup_theory: float | None
    speedup_textbook: float | None
    share_draft: float
    share_target: float
    share_sample: float


def read_prompts(file: Path) -> list[Prompt]:
    """Prompts from lines of JSON: `category`, and `turns` (a list) or `prompt`.

    Raises:
        UsageError: no such file, not UTF-8, no prompts, or a bad line, which is named.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    prompts = [
        _prompt(line, f"{file}, line {n}") for n, line in enumerate(lines, 1) if line.strip()
    ]
    if not prompts:
        raise UsageError(f"{file} has no prompts: give lines of JSON")
    return prompts


def _prompt(line: str, where: str) -> Prompt:
    try:
        record = json.loads(line)
        turns = record["turns"] if "turns" in record else [record["prompt"]]
        if turns and all(isinstance(turn, str) and turn.strip() for turn in turns):
            return Prompt(str(record.get("category", "all")), tuple(turns))
    except (ValueError, TypeError, KeyError):
        pass
    raise UsageError(f'{where}: not {{"category": ..., "turns": [...]}} or {{..., "prompt": ...}}')


def run(
    session: Session,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    seed: int,
    progress: BenchProgress | None = None,
) -> Iterator[Pair]:
    """Decode every turn of every prompt plainly and with the draft, in turn; a pair each.

    Both start from the same conversation, the draft's, with the same seed. Which comes first
    alternates, so that a machine that grows slower favours neither. A first pair warms up and is
    not given.
    """
    _answer(session, prompts[0].turns[0], [], max_tokens=16, seed=seed, plain=False)
    first_plain = True
    for n, prompt in enumerate(prompts):
        messages: list[tuple[str, str]] = []
        for turn in prompt.turns:
            stats: dict[bool, Stats] = {}
            for plain in (first_plain, not first_plain):
                text, stats[plain] = _answer(
                    session, turn, messages, max_tokens=max_tokens, seed=seed + n, plain=plain
                )
                answer = text if not plain else ""
            first_plain = not first_plain
            messages.append((turn, answer))
            yield Pair(prompt.category, stats[True], stats[False])
        if progress is not None:
            progress(prompt.category, n + 1, len(prompts))


def _answer(
    session: Session,
    turn: str,
    before: Sequence[tuple[str, str]],
    *,
    max_tokens: int,
    seed: int,
    plain: bool,
) -> tuple[str, Stats]:
    session.reset()
    for asked, answered in before:
        session.messages.append({"role": "user", "content": asked})
        session.messages.append({"role": "assistant", "content": answered})
    steps = session.generate(turn, max_tokens=max_tokens, seed=seed, plain=plain)
    return "".join(step.text for step in steps), session.stats


def summarize(pairs: Sequence[Pair]) -> dict[str, Result]:
    """Results by category, `overall` last."""
    categories = {pair.category: None for pair in pairs}
    results = {name: _result([p for p in pairs if p.category == name]) for name in categories}
    return {**results, OVERALL: _result(pairs)}


def _result(pairs: Sequence[Pair]) -> Result:
    fast, plain = Stats(), Stats()
    for pair in pairs:
        fast.merge(pair.fast)
        plain.merge(pair.plain)
    positions = zip(fast.accepted_by_position, fast.tried_by_position, strict=True)
    return Result(
        prompts=len(pairs),
        tokens_per_second=fast.tokens_per_second or 0.0,
        plain_tokens_per_second=plain.tokens_per_second or 0.0,
        speedup=bootstrap([pair.ratio for pair in pairs]),
        alpha=fast.alpha,
        alpha_exact=fast.alpha_exact,
        accepted_by_position=[accepted / tried for accepted, tried in positions if tried],
        tokens_per_cycle=fast.tokens_per_cycle,
        k=fast.k,
        c=fast.c,
        speedup_theory=fast.speedup_theory,
        speedup_textbook=fast.speedup_textbook,
        share_draft=fast.draft / fast.decode if fast.decode else 0.0,
        share_target=fast.target / fast.decode if fast.decode else 0.0,
        share_sample=fast.sample / fast.decode if fast.decode else 0.0,
    )


def bootstrap(ratios: Sequence[float]) -> Speedup:
    """The median and its 95 % interval, from resampling the pairs with replacement."""
    values = np.asarray(ratios, np.float64)
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (_RESAMPLES, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Speedup(float(np.median(values)), float(low), float(high))


def peak_memory() -> int:
    """The most memory that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
