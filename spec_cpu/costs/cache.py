"""Measured costs, kept on disk: a file for each pair of models, setting, machine and depth."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from spec_cpu import defaults
from spec_cpu.cache import cache_dir, write_text
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.machine import hardware
from spec_cpu.machine.processors import processors
from spec_cpu.notices import DailyNotice
from spec_cpu.progress import MeasureProgress

if TYPE_CHECKING:
    from spec_cpu.draft.base import DraftPasses
    from spec_cpu.llama.context import Context
    from spec_cpu.llama.sequence import KVSequence
    from spec_cpu.sampling.pipeline import Pipeline

_FORMAT = 6  # of the file; another one is measured again
_HOUR = 3600  # seconds
_DAY = 24 * _HOUR
_SHORT = 1024  # tokens of context, up to which passes cost much the same; then each doubling counts
_CLASSES = 12  # of contexts
_DOUBTS = 3  # measurements that proved doubtful, after which there is but one an hour
_WRONG = 1.5  # a run in which passes take so many times as long, or as short, contradicts costs
_PASSES = 16  # of a width, from which on a run says anything of it


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a file has.

    Attributes:
        doubtful: were they disturbed, or contradicted by a run?
        doubts: how many measurements proved doubtful so far.
    """

    costs: Costs
    doubtful: bool
    doubts: int

    @property
    def due(self) -> bool:
        """Is it time to measure them again?"""
        age = _age(self.costs)
        if not 0 <= age < defaults.COSTS_AGE:
            return True
        return self.doubtful and (self.doubts < _DOUBTS or age > _HOUR)


class CostCache:
    """Where the costs of one combination are kept.

    The combination: both files, threads, the type of the cache of keys and values, llama.cpp's
    version, the kernels, the processor and the machines that hold layers. What it is asked for
    matters not: chains and trees, plans and answers go by the same costs.

    Costs that were measured beside other work, or that a run contradicted, are doubtful. They are
    measured again at the next start; where that helps not, once an hour, or once an answer that
    nothing disturbed contradicts them. A plan does not go by them.

    Attributes:
        record: the file of what sources brought with this combination, see `KeptRecord`.
    """

    def __init__(self, target: Context, draft: Context | None) -> None:
        parts = {
            "target": target.model.fingerprint,
            "draft": None if draft is None else draft.model.fingerprint,
            "threads": target.threads,
            "kv": "f16",
            "kernels": [target.model.kernels, None if draft is None else draft.model.kernels],
            "llama-cpp-python": version("llama-cpp-python"),
            "processor": hardware.processor(),
        }
        if target.model.servers:
            parts["servers"] = [str(server) for server in target.model.servers]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        self._digest = digest
        self.record: Path = cache_dir() / "records" / f"{digest}.json"

    def read(self, max_width: int, depth: int, *, rough: bool = True) -> Costs | None:
        """The kept costs, if they cover passes of `max_width` tokens; else None.

        A file that is damaged, old, due again, or of another format counts as none.

        Args:
            depth: tokens of context that they are wanted for.
            rough: take those of the nearest depth, if there are none of about this one, and
                doubtful ones as long as they are not due.
        """
        classes = sorted(range(_CLASSES), key=lambda one: abs(one - _class(depth)))
        for each in classes if rough else classes[:1]:
            kept = _read(self._path(each))
            if not kept or kept.due or (kept.doubtful and not rough):
                continue
            if len(kept.costs.passes) >= max_width:
                return kept.costs
        return None

    def write(self, costs: Costs) -> str | None:
        """Keep `costs`; a notice if that is not possible."""
        before = _read(self._path(_class(costs.depth)))
        doubts = before.doubts if before and _age(before.costs) < defaults.COSTS_AGE else 0
        return self._write(costs, doubtful=bool(costs.disturbed), doubts=doubts)

    def doubt(self, costs: Costs) -> None:
        """A run that nothing disturbed contradicts `costs`, which are kept here.

        They are due then, also where several measurements were disturbed: the machine is quiet now.
        """
        for each in range(_CLASSES):
            kept = _read(self._path(each))
            if kept and kept.costs.measured == costs.measured and not (kept.doubtful and kept.due):
                doubts = _DOUBTS - 2 if kept.doubtful else kept.doubts
                self._write(kept.costs, doubtful=True, doubts=doubts)

    def _write(self, costs: Costs, *, doubtful: bool, doubts: int) -> str | None:
        path = self._path(_class(costs.depth))
        kept = _Kept(costs, doubtful, doubts + doubtful)
        try:
            write_text(path, json.dumps({"format": _FORMAT, **asdict(kept)}))
        except OSError as error:
            return f"cannot keep the measured costs in {path.parent} ({error.strerror})"
        return None

    def _path(self, depth_class: int) -> Path:
        deep = f"-{depth_class}" if depth_class else ""
        return _folder() / f"{self._digest}{deep}.json"


def known_or_measured(
    target: KVSequence,
    token: int,
    *,
    max_width: int,
    pipeline: Pipeline,
    draft: DraftPasses | None,
    anew: bool,
    rough: bool = True,
    progress: MeasureProgress | None,
) -> tuple[Costs, str | None]:
    """The kept costs of these models where both sequences end, or new ones; a notice, if any.

    Args:
        anew: measure in any case. `rough`: see `CostCache.read`. The others: as for
            `measure.measure`.
    """
    cache = CostCache(target.context, None if draft is None else draft.context)
    costs = None if anew else cache.read(max_width, len(target), rough=rough)
    unkept = None
    if costs is None:
        with processors.claimed():
            costs = measure.measure(
                target,
                token,
                max_width=max_width,
                pipeline=pipeline,
                draft=draft,
                progress=progress,
            )
        costs = replace(costs, measured=time.time())
        unkept = cache.write(costs)
    if costs.disturbed and not unkept:
        notice = (
            f"this machine was busy while it was timed ({costs.disturbed}; {timed(costs)}), so how "
            "far is guessed ahead may not be the best. It is timed again at a later start, or now "
            "with `recalibrate`"
        )
        return costs, DailyNotice(notice, "costs that were timed while the machine was busy")
    return costs, unkept


def contradicted(costs: Costs, seen: Mapping[int, tuple[int, float]], depth: int) -> bool:
    """Do passes in a run take much longer, or much shorter, than `costs` say?

    Args:
        seen: by their width: how many passes there were, and the median of their seconds.
        depth: tokens of context that these had, about.
    """
    here = costs.at(depth)
    for n, (count, seconds) in seen.items():
        if count < _PASSES or n > len(here.passes):
            continue
        given = here.passes[n - 1]
        # After a pass of another width the graph is built, and the clock is lower.
        more = here.rebuild + here.recovery
        if seconds * _WRONG < given or seconds > _WRONG * (given + more):
            return True
    return False


def timed(costs: Costs) -> str:
    """When `costs` were measured, in a person's words: "timed 3 days ago"."""
    for unit, seconds in (("day", _DAY), ("hour", _HOUR), ("minute", 60)):
        if (n := int(_age(costs) // seconds)) > 0:
            return f"timed {n} {unit}{'s' if n > 1 else ''} ago"
    return "timed just now"


def old(costs: Costs) -> bool:
    """Were they measured more than a day ago?"""
    return _age(costs) > _DAY


def _class(depth: int) -> int:
    """0 for a short context, 1, 2, ... for each doubling of a longer one."""
    return (depth // _SHORT).bit_length()


def _folder() -> Path:
    return cache_dir() / "costs"


def _read(path: Path) -> _Kept | None:
    """What is kept at `path`; None if that is damaged, of another format or missing."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept.pop("format") != _FORMAT:
            return None
        costs = kept.pop("costs")
        tuples = {name: tuple(costs[name]) for name in ("passes", "deepens")}
        found = _Kept(Costs(**{**costs, **tuples}), **kept)
        _ = found.due  # that its numbers are numbers
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found


def _age(costs: Costs) -> float:
    """Seconds since they were measured."""
    return time.time() - costs.measured
