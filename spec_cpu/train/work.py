"""The folder that a training works in: what was asked for, what is done, and all that is kept.

```
run.json         this module's
data/            shards to learn from
held-out/        one shard to judge by
checkpoint.pt    the network as far as it is trained
```
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any

from spec_cpu import defaults
from spec_cpu.cache import write_text
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.heads.container import EAGLE, KINDS
from spec_cpu.train.shards import ShardStore

_STATE = "run.json"
_HELD_OUT_EVERY = 10  # of this many prompts one is held out
_OPTIONS = {"prompts": "`prompts` FILE"}  # where it is not the name and the value

Turns = list[list[str]]

_NUMBER = (float, int, type(None))
_TYPES: dict[str, type | tuple[type, ...]] = {  # what a file may have wrong
    "seed": int,
    "vocabulary": int,
    "prompts": list,
    "hours": _NUMBER,
    "tokens": (int, type(None)),
    "spent": dict,
    "generated": bool,
    "shards": int,
    "epochs": _NUMBER,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a training is asked for; None: as it was begun, or the default.

    Attributes:
        kind: of head.
        seed: the same seed gives the same head, on one machine, if `tokens` are given.
        vocabulary: tokens that the head can propose.
        hours: the time that it may take. tokens: to generate and learn from, instead.
        epochs: passes over them; with hours as many as they are enough for.
        prompts: user turns that half of the conversations begin with; default: all made up.
    """

    kind: str | None = None
    seed: int | None = None
    vocabulary: int | None = None
    hours: float | None = None
    tokens: int | None = None
    prompts: Turns | None = None
    epochs: float | None = None


_DEFAULTS = {"kind": EAGLE, "seed": 0, "vocabulary": defaults.TRAIN_VOCABULARY, "prompts": []}
_DEFAULT_HOURS = 1.0


@dataclass(slots=True)
class Work:
    """A training's folder. Make one with `open_work`.

    Attributes:
        target, fingerprint: the model that the head is for.
        hours, tokens: the budget: one of the two.
        spent: seconds that each step took so far.
        generated: did the generation come to its end?
        shards: to learn from, that it made.
        epochs: over the data; None until it is known how many fit into the hours.
    """

    folder: Path
    target: str
    fingerprint: str
    kind: str
    seed: int
    vocabulary: int
    prompts: Turns
    hours: float | None = None
    tokens: int | None = None
    spent: dict[str, float] = field(default_factory=dict)
    generated: bool = False
    shards: int = 0
    epochs: float | None = None

    @property
    def data(self) -> ShardStore:
        return ShardStore(self.folder / "data")

    @property
    def held_out(self) -> ShardStore:
        return ShardStore(self.folder / "held-out")

    @property
    def learnt_prompts(self) -> Turns:
        """The prompts whose answers are learnt from."""
        return [turns for i, turns in enumerate(self.prompts) if i % _HELD_OUT_EVERY]

    @property
    def held_out_prompts(self) -> Turns:
        """The prompts whose answers are held out."""
        return self.prompts[::_HELD_OUT_EVERY]

    @property
    def lacks_shards(self) -> bool:
        """Were shards removed that had been generated?"""
        return self.generated and (len(self.data) < self.shards or not len(self.held_out))

    def save(self) -> None:
        """Raises SpecCpuError: it cannot be written."""
        record = asdict(self)
        del record["folder"]
        try:
            write_text(self.folder / _STATE, json.dumps(record, indent=1))
        except OSError as error:
            raise SpecCpuError(f"cannot write to {self.folder}: {error.strerror}") from None

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time that `step` takes to what it took before, however it ends."""
        start = perf_counter()
        try:
            yield
        finally:
            self.spent[step] = self.spent.get(step, 0.0) + perf_counter() - start
            with contextlib.suppress(SpecCpuError):  # the error of a full disk was raised already
                self.save()


def open_work(folder: Path, target: str, fingerprint: str, asked: Asked) -> Work:
    """Begin a training in `folder`, or go on with the one that is there.

    Raises:
        UsageError: it is one of another target, or was begun with other options; the options make
            no sense; or it is damaged.
        SpecCpuError: it cannot be written.
    """
    _check(asked)
    if (folder / _STATE).exists():
        work = _read(folder)
        _check_same(work, fingerprint, asked)
        return work
    given = {name: value for name, value in asdict(asked).items() if value is not None}
    if "hours" not in given and "tokens" not in given:
        given["hours"] = _DEFAULT_HOURS
    options: dict[str, Any] = {**_DEFAULTS, **given}
    work = Work(folder=folder, target=target, fingerprint=fingerprint, **options)
    work.save()
    return work


def _check(asked: Asked) -> None:
    if asked.hours is not None and asked.tokens is not None:
        raise UsageError("`hours` and `tokens` both say how much to train: give one of them")
    if asked.hours is not None and not 0.0 < asked.hours <= 1000.0:
        raise UsageError(f"`hours` must be more than 0 and at most 1,000, not {asked.hours:g}")
    if asked.epochs is not None and not 0.0 < asked.epochs <= 100.0:
        raise UsageError(f"`epochs` must be more than 0 and at most 100, not {asked.epochs:g}")
    least = {"tokens": 1, "seed": 0, "vocabulary": 1}
    for name, bound in least.items():
        value = getattr(asked, name)
        if value is not None and value < bound:
            raise UsageError(f"`{name}` must be {bound} or more, not {value}")
    if asked.prompts is not None and len(asked.prompts) < 2:
        raise UsageError("one prompt cannot be held out and learnt from: give two at least")


def _read(folder: Path) -> Work:
    file = folder / _STATE
    try:
        work = Work(folder=folder, **json.loads(file.read_text(encoding="utf-8")))
        sound = all(isinstance(getattr(work, name), kind) for name, kind in _TYPES.items())
        if sound and work.kind in KINDS:
            return work
    except (OSError, ValueError, TypeError):
        pass
    raise UsageError(f"{file} is damaged: delete it, or give another `resume`")


def _check_same(work: Work, fingerprint: str, asked: Asked) -> None:
    if work.fingerprint != fingerprint:
        raise UsageError(
            f"{work.folder} is the training of a head for {work.target}: give that target, or "
            "another `resume`"
        )
    for option in fields(Asked):
        given, begun = getattr(asked, option.name), getattr(work, option.name)
        if given is not None and given != begun:
            raise UsageError(
                f"{work.folder} was begun {_as_option(option.name, begun)}: leave the option "
                "out, or give another `resume`"
            )


def _as_option(name: str, value: float | int | str | Sequence[object] | None) -> str:
    if not value and value != 0:
        return f"without `{name}`"
    return f"with {_OPTIONS.get(name, f'`{name}` {value}')}"
