"""What `bench/serve.py` measured, kept in files, and the table of it."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from serve_load import Answer, busy_seconds
from serve_servers import OURS, SERVERS

from spec_cpu.errors import UsageError

HEADER = (
    *("model", "temperature", "clients", "server", "tokens a second", "ours in this"),
    *("first token (median, 99 %)", "gap (median, 99 %)", "nodes a pass", "rounds"),
)


@dataclass(frozen=True, slots=True)
class Record:
    """One play of a schedule on one server. Seconds; of the lists, every value of every answer."""

    tokens: int
    seconds: float
    firsts: list[float]
    gaps: list[float]
    nodes: float  # drafted for a pass

    @classmethod
    def of(cls, answers: Sequence[Answer], passes: float) -> Record:
        return cls(
            tokens=sum(answer.tokens for answer in answers),
            seconds=busy_seconds(answers),
            firsts=[answer.arrivals[0] - answer.sent for answer in answers if answer.arrivals],
            gaps=[gap for answer in answers for gap in answer.gaps],
            nodes=sum(answer.drafted for answer in answers) / passes if passes else 0.0,
        )

    @property
    def speed(self) -> float:
        """Tokens a second, of all clients together."""
        return self.tokens / self.seconds


@dataclass(slots=True)
class Cell:
    """The same load on every server: a list of plays for each, one a round."""

    path: Path
    model: str
    temperature: float
    clients: int
    records: dict[str, list[Record]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, model: str, temperature: float, clients: int) -> Cell:
        """The cell, as far as it was measured.

        Raises:
            UsageError: its file is damaged.
        """
        path = folder / f"{model}_{temperature:g}_{clients}.json"
        cell = cls(path, model, temperature, clients)
        if path.exists():
            try:
                known = json.loads(path.read_text(encoding="utf-8"))
                cell.records = {
                    name: [Record(**each) for each in records] for name, records in known.items()
                }
            except (ValueError, TypeError, AttributeError):
                raise UsageError(f"{path} is damaged: delete it, to measure anew") from None
        return cell

    def add(self, server: str, record: Record) -> None:
        """Keep a play, on disk too."""
        self.records.setdefault(server, []).append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        known = {name: [asdict(each) for each in its] for name, its in self.records.items()}
        part.write_text(json.dumps(known), encoding="utf-8")
        part.replace(self.path)

    def median(self, server: str, value: Callable[[Record], float]) -> float:
        """The median over the rounds."""
        return statistics.median(map(value, self.records[server]))

    def ratio(self, server: str) -> float:
        """Our tokens a second in those of `server`: the median of the rounds that both have."""
        ours, theirs = self.records.get(OURS, []), self.records[server]
        ratios = [a.speed / b.speed for a, b in zip(ours, theirs, strict=False)]
        return statistics.median(ratios) if ratios else math.nan

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row of the table for each server that was measured; times in milliseconds."""
        for server in SERVERS:
            if server not in self.records:
                continue
            row: dict[str, Any] = {
                "model": self.model,
                "temperature": self.temperature,
                "clients": self.clients,
                "server": server,
                "tokens_per_second": self.median(server, lambda one: one.speed),
                "ours_in_this": self.ratio(server),
            }
            row |= self._percentiles(server, "first", lambda one: one.firsts)
            row |= self._percentiles(server, "gap", lambda one: one.gaps)
            row["nodes_per_pass"] = self.median(server, lambda one: one.nodes)
            row["rounds"] = len(self.records[server])
            yield row

    def _percentiles(
        self, server: str, name: str, values: Callable[[Record], list[float]]
    ) -> dict[str, float]:
        """Of `values`, in milliseconds: medians over the rounds."""
        return {
            f"{name}_median_ms": 1e3 * self.median(server, lambda one: percentile(values(one), 50)),
            f"{name}_p99_ms": 1e3 * self.median(server, lambda one: percentile(values(one), 99)),
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` % of all do not exceed; nan of none."""
    return float(np.percentile(values, share)) if values else math.nan


def cells_in(folder: Path) -> list[Cell]:
    """All that were measured, in the order of the table."""
    named = (re.fullmatch(r"(.+)_(.+)_(\d+)", path.stem) for path in folder.glob("*.json"))
    keys = sorted((one[1], float(one[2]), int(one[3])) for one in named if one)
    return [Cell.read(folder, *key) for key in keys]


def markdown(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The table's lines."""
    lines = [_line(HEADER), _line(["---"] * len(HEADER))]
    for row in rows:
        first, gap = (
            f"{row[f'{name}_median_ms']:.0f}, {row[f'{name}_p99_ms']:.0f} ms"
            for name in ("first", "gap")
        )
        speed, ratio = f"{row['tokens_per_second']:.1f}", f"{row['ours_in_this']:.2f}"
        names = [row["model"], f"{row['temperature']:g}", str(row["clients"]), row["server"]]
        nodes = [f"{row['nodes_per_pass']:.1f}", str(row["rounds"])]
        lines.append(_line([*names, speed, ratio, first, gap, *nodes]))
    return lines


def _line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def verdict(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Where ours is first, and where it is not."""
    rivals = [row for row in rows if row["server"] != OURS and not math.isnan(row["ours_in_this"])]
    lost = [row for row in rivals if row["ours_in_this"] < 1]
    return [f"{OURS} is ahead in {len(rivals) - len(lost)} of {len(rivals)} comparisons."] + [
        f"Not ahead: {row['model']}, temperature {row['temperature']:g}, {row['clients']} clients: "
        f"{row['ours_in_this']:.2f} of {row['server']}."
        for row in lost
    ]
