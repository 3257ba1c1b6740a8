"""Several ways to decode, each on the same prompts in turn: the arms of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from spec_cpu.answer.stats import Stats
from spec_cpu.bench.rivals import Decoded, Rival
from spec_cpu.errors import UsageError
from spec_cpu.session import Session
from spec_cpu.text.files import decode, read_bytes
from spec_cpu.text.repetition import repetition

SHIPPED = Path(__file__).parent / "prompts.jsonl"  # of every kind, that come with the package
PLAIN = 0
_WARM_UP_TOKENS = 16

Pin = int | None
"""A session's arm: the k that it pins, `PLAIN` for none at all; None: chosen each cycle."""

BenchProgress = Callable[[int, int], None]
"""Told (answers done, answers in all) before each answer and at the end."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a benchmark asks: its kind, and the user's turns."""

    category: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One turn, answered by every arm.

    Attributes:
        conversation: the number of the prompt, which may have several turns.
        stats: of the session's own arms.
        rivals: times of other programs, by name; without those whose answer was too short to time.
        repetition: how much the answer of the first arm repeats itself.
    """

    category: str
    stats: dict[Pin, Stats] = field(default_factory=dict)
    rivals: dict[str, Decoded] = field(default_factory=dict)
    repetition: float = 0.0
    conversation: int = 0


def read_prompts(file: Path) -> list[Prompt]:
    """Prompts from lines of JSON: `category`, and `turns` (a list) or `prompt`.

    Raises:
        UsageError: a file that cannot be read, is not UTF-8 or has no prompts, or a bad line, which
            is named.
    """
    lines = decode(read_bytes(file), file).splitlines()
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
    pins: Sequence[Pin],
    rivals: Sequence[Rival] = (),
    max_tokens: int,
    seed: int,
    progress: BenchProgress | None = None,
) -> Iterator[Round]:
    """Let every arm answer every turn of every prompt; a round each.

    All start from the same conversation, that of the first pin, with the same seed. The arm that
    begins changes from round to round, so that a machine that grows slower favours none. A first
    round warms up and is not given.

    Args:
        pins: the session's arms: the speculative one that the conversation follows, then others.
        progress: may raise, to end it between two answers.
    """
    rounds = 1 + sum(len(prompt.turns) for prompt in prompts)
    bench = _Bench(session, pins, rivals, rounds, progress)
    bench.round(Prompt("", prompts[0].turns[:1]), 0, [], min(max_tokens, _WARM_UP_TOKENS), seed)
    for n, prompt in enumerate(prompts):
        before: list[tuple[str, str]] = []
        for turn in range(len(prompt.turns)):
            done = bench.round(prompt, turn, before, max_tokens, seed + n)
            yield replace(done, conversation=n)
    bench.report()


class _Bench:
    """The arms, and how many answers they gave."""

    def __init__(
        self,
        session: Session,
        pins: Sequence[Pin],
        rivals: Sequence[Rival],
        rounds: int,
        progress: BenchProgress | None,
    ) -> None:
        self._session = session
        self._main = pins[0]
        self._arms: list[Pin | Rival] = [*pins, *rivals]
        self._progress = progress
        self._done, self._total = 0, rounds * len(self._arms)

    def report(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total)

    def round(
        self,
        prompt: Prompt,
        turn: int,
        before: list[tuple[str, str]],
        max_tokens: int,
        seed: int,
    ) -> Round:
        """Every arm's answer to one turn; the main arm's is added to `before` with its question."""
        result = Round(prompt.category)
        asked, answered = prompt.turns[turn], ""
        first = self._done // len(self._arms) % len(self._arms)
        for arm in (*self._arms[first:], *self._arms[:first]):
            self.report()
            self._recall(before)
            if arm is None or isinstance(arm, int):
                text = self._session.answer(
                    asked, max_tokens=max_tokens, seed=seed, repeatable=False, k=arm
                )
                answered = text if arm == self._main else answered
                result.stats[arm] = self._session.stats
            else:
                decoded = arm.answer(self._session.render(asked), max_tokens, seed)
                if decoded is not None:
                    result.rivals[arm.name] = decoded
            self._done += 1
        before.append((asked, answered))
        return replace(result, repetition=repetition(answered))

    def _recall(self, before: Sequence[tuple[str, str]]) -> None:
        self._session.reset()
        for asked, answered in before:
            self._session.messages.append({"role": "user", "content": asked})
            self._session.messages.append({"role": "assistant", "content": answered})
