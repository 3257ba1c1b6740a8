"""Measured costs, kept on disk: a file for each pair of models, setting and machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from spec_cpu import defaults
from spec_cpu.cache import cache_dir
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.draft.base import DraftPasses
from spec_cpu.machine import hardware
from spec_cpu.machine.processors import processors
from spec_cpu.progress import MeasureProgress

if TYPE_CHECKING:
    from spec_cpu.llama.context import Context
    from spec_cpu.llama.sequence import KVSequence
    from spec_cpu.sampling.pipeline import Pipeline

_FORMAT = 4  # of the file; another one is measured again


class CostCache:
    """Where the costs of one combination are kept.

    The combination: both files, paths of a tree, threads, the type of the cache of keys and values,
    llama.cpp's version, the kernels and the processor.

    Attributes:
        record: the file of what sources brought with this combination, see `KeptRecord`.
    """

    def __init__(self, target: Context, draft: Context | None) -> None:
        parts = {
            "target": target.model.fingerprint,
            "draft": draft.model.fingerprint if draft else None,
            "paths": [target.n_seq, draft.n_seq if draft else None],
            "threads": target.threads,
            "kv": "f16",
            "kernels": [target.model.kernels, draft.model.kernels if draft else None],
            "llama-cpp-python": version("llama-cpp-python"),
            "processor": hardware.processor(),
        }
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        self._path: Path = cache_dir() / "costs" / f"{digest}.json"
        self.record: Path = cache_dir() / "records" / f"{digest}.json"

    def read(self, max_width: int) -> Costs | None:
        """The kept costs, if they cover passes of `max_width` tokens; else None.

        A file that is damaged, old, or of another format counts as none.
        """
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            fresh = 0 <= time.time() - record["measured"] < defaults.COSTS_AGE
            if record["format"] != _FORMAT or not fresh:
                return None
            costs = Costs(**{**record["costs"], "passes": tuple(record["costs"]["passes"])})
            return costs if len(costs.passes) >= max_width else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, costs: Costs) -> str | None:
        """Keep `costs`; a notice if that is not possible."""
        record = {"format": _FORMAT, "measured": time.time(), "costs": asdict(costs)}
        temporary = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(record), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            return f"cannot keep the measured costs in {self._path.parent} ({error.strerror})"
        return None


def known_or_measured(
    target: KVSequence,
    token: int,
    *,
    max_width: int,
    pipeline: Pipeline,
    draft: DraftPasses | None,
    anew: bool,
    progress: MeasureProgress | None,
) -> tuple[Costs, str | None]:
    """The kept costs of these models, or new ones; a notice where they could not be kept.

    Args:
        anew: measure in any case. The others: as for `measure.measure`.
    """
    cache = CostCache(target.context, draft.context if draft else None)
    costs = None if anew else cache.read(max_width)
    if costs is not None:
        return costs, None
    with processors.claimed():
        costs = measure.measure(
            target, token, max_width=max_width, pipeline=pipeline, draft=draft, progress=progress
        )
    return costs, cache.write(costs)
