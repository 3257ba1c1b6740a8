"""Does a model gain from the verify kernels here? Measured once for each model and machine."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from time import perf_counter, time
from typing import Literal, get_args

from spec_cpu.errors import ContextError, KernelsError, ModelError, UsageError
from spec_cpu.kernels.build import Build
from spec_cpu.kernels.ready import ready
from spec_cpu.llama.context import Context
from spec_cpu.llama.kernels import formats, row_ops
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.machine import hardware
from spec_cpu.machine.disturbance import disturbance, spent
from spec_cpu.notices import DailyNotice
from spec_cpu.progress import Progress
from spec_cpu.sampling.logits import NumpyRowOps, RowOps

Mode = Literal["auto", "on", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)

_WIDTHS = (1, 4)  # a plain step, and a verification as drafts of common length ask for it
_ROUNDS = 9
_PACKED = 1.05  # packed weights are no mapped file, and a little larger than one
_DISTURBED_AGE = 3600  # seconds until times that were disturbed are taken anew
_SECONDS = 2.0  # for the passes of one model with one kind of kernels, at most


class Kernels:
    """The kernels that a session's models may use."""

    def __init__(
        self,
        mode: str,
        *,
        threads: int | None = None,
        fresh: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Compile, check and load the library, unless `mode` is `off`.

        What the environment has as SPEC_CPU_KERNELS replaces `auto`.

        Args:
            fresh: time models again that were timed before.

        Attributes:
            threads: that passes run on, and that pack weights.
            notice: why there are none, if there are none but were asked for, or for which formats
                there are none. In mode `auto` it is a daily one that there are none at all.

        Raises:
            UsageError: no such mode, or no such instruction set as SPEC_CPU_ISA says.
        """
        if mode == "auto":
            mode = os.environ.get("SPEC_CPU_KERNELS", mode)
        if mode not in MODES:
            raise UsageError(f"`kernels` must be one of {', '.join(MODES)}, not {mode}")
        self.notice: str | None = None
        self._mode = mode
        self._fresh = fresh
        self.threads = hardware.threads(threads)
        self._build = None if mode == "off" else self._obtain(progress)

    @property
    def row_ops(self) -> RowOps:
        """What does the operations on rows of logits."""
        return NumpyRowOps() if self._build is None else row_ops(self._build.library)

    def _obtain(self, progress: Progress | None) -> Build | None:
        try:
            found = ready(progress=progress)
        except KernelsError as error:
            self.notice = DailyNotice(error) if self._mode == "auto" else str(error)
            return None
        wrong = [name for name, fault in formats(found.library).items() if fault]
        if wrong:
            self.notice = (
                f"the kernels for {', '.join(wrong)} failed their self-test: llama.cpp's are used "
                "for these; `spec-cpu kernels status` says more"
            )
        return found

    def library_for(
        self, model: Path, progress: Progress | None = None, *, elsewhere: bool = False
    ) -> Path | None:
        """The library to load `model` with, or None for stock kernels; `notice` may say why.

        In mode `auto` a model that is new here is loaded both ways and passes are timed. Times that
        other work disturbed decide nothing: ours, the faster ones of most models, are taken for an
        hour, after which it is timed again.

        Args:
            elsewhere: its layers are put on other machines. What stays, its output matrix, gains in
                passes over several tokens, and loading it both ways would take long.
        """
        if self._build is None:
            return None
        if elsewhere:
            return self._build.library
        available = hardware.available_memory()
        if available is not None and _PACKED * model.stat().st_size > available:
            self.notice = (
                f"packed weights of {model.name} do not fit in memory: llama.cpp's are used"
            )
            return None
        if self._mode == "on" or self._gains(model, self._build, progress):
            return self._build.library
        return None

    def _gains(self, model: Path, found: Build, progress: Progress | None) -> bool:
        record = found.folder / f"{Model.fingerprint_of(model)}-{self.threads}.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            times = {} if self._fresh else json.loads(record.read_text(encoding="utf-8"))
            if not times.get("disturbed"):
                return bool(sum(times["ours"]) < sum(times["stock"]))
            if 0 <= time() - record.stat().st_mtime < _DISTURBED_AGE:
                return True
        if progress is not None:
            progress(f"trying the kernels on {model.name} (once)", 0, None)
        before = spent()
        try:
            stock, ours = (_times(model, each, self.threads) for each in (None, found.library))
        except (ModelError, ContextError):
            return False  # loading it in earnest will say what is wrong
        disturbed = disturbance(before, spent(), self.threads)
        with contextlib.suppress(OSError):
            found_out = {"stock": stock, "ours": ours, "disturbed": disturbed}
            record.write_text(json.dumps(found_out), encoding="utf-8")
        return disturbed is not None or sum(ours) < sum(stock)


def _times(path: Path, library: Path | None, threads: int) -> list[float]:
    """Seconds of a pass of each width, the best of a few."""
    with (
        Model(path, kernels=library, threads=threads) as model,
        Context(model, n_ctx=64, n_batch=16, threads=threads) as context,
    ):
        sequence = KVSequence(context)
        return [_best_time(sequence, [0] * width) for width in _WIDTHS]


def _best_time(sequence: KVSequence, tokens: list[int]) -> float:
    best = float("inf")
    begin = perf_counter()
    for _ in range(_ROUNDS):
        start = perf_counter()
        sequence.score(tokens)
        best = min(best, perf_counter() - start)
        sequence.truncate(0)
        if perf_counter() - begin > _SECONDS / len(_WIDTHS):
            break
    return best
