"""What `bench/shapes.py` measured: of which model, with which engine, kept in which file."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from shape_files import DRAFTS, SHAPES, write

from spec_cpu.errors import UsageError

Record = dict[str, Any]

OURS, STOCK, IK = "ours", "llama.cpp", "ik_llama.cpp"
ENGINES = (OURS, STOCK, IK)


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A shape in a format."""

    shape: str
    file_format: str

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.file_format.lower()}"

    @property
    def draft(self) -> RandomModel | None:
        draft = DRAFTS.get(self.shape)
        return None if draft is None else RandomModel(draft, self.file_format)

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.gguf"

    def write(self, folder: Path) -> None:
        """Write the file, and the draft's, unless they are there."""
        if self.draft is not None:
            self.draft.write(folder)
        if not self.file(folder).exists():
            start = perf_counter()
            write(SHAPES[self.shape], self.shape, self.file(folder), self.file_format)
            seconds = perf_counter() - start
            size = self.file(folder).stat().st_size / 1e9
            print(f"{self.file(folder)}: {size:.2f} GB in {seconds:.0f} s", flush=True)


@dataclass(slots=True)
class Cell:
    """What was measured of a model with an engine; kept in a file.

    Attributes:
        rounds: passes and short prompts, a record of `shape_passes.py` a round.
        long: the same of a long prompt.
    """

    path: Path
    rounds: list[Record] = field(default_factory=list)
    long: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, model: RandomModel, engine: str) -> Cell:
        path = folder / f"{model.name}-{engine}.json"
        if not path.exists():
            return cls(path)
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, known["rounds"], known["long"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path} is damaged: delete it, to measure anew") from None

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"rounds": self.rounds, "long": self.long}), encoding="utf-8")
        part.replace(self.path)

    def passes(self, n: int) -> float:
        """Seconds of a pass over n tokens: the best of each round."""
        return _median_of(self.rounds, lambda record: record["passes"].get(str(n), []), min)

    def prompt(self, n: int) -> float:
        """Seconds of a prompt of n tokens: the best of each round."""
        records = self.rounds + self.long
        return _median_of(records, lambda record: record["prompts"].get(str(n), []), min)

    @property
    def draft_step(self) -> float:
        """Seconds of a draft's step beside the target's passes."""
        return _median_of(self.rounds, lambda record: record["draft_steps"], statistics.median)

    @property
    def memory(self) -> float:
        """Bytes after the prompts; nan where only the most is known."""
        return _median_of(self.rounds, lambda record: [record.get("memory", math.nan)], max)

    @property
    def peak(self) -> float:
        """Bytes at the most."""
        return _median_of(self.rounds, lambda record: [record["peak"]], max)

    @property
    def load(self) -> float:
        """Seconds of loading a file in the system's cache."""
        return _median_of(self.rounds, lambda record: [record["load"]], min)


def _median_of(
    records: Sequence[Record],
    values: Callable[[Record], list[float]],
    of_round: Callable[[list[float]], float],
) -> float:
    """The lower median over the rounds that have values; nan where none has."""
    found = [of_round(values(record)) for record in records if values(record)]
    return statistics.median_low(found) if found else math.nan
