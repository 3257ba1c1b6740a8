"""A head from a target: generate, train, evaluate. Each step goes on where it was stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter

from spec_cpu import __version__, defaults
from spec_cpu.errors import ModelError, SpecCpuError, UsageError
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.model import Model
from spec_cpu.machine import hardware
from spec_cpu.progress import Progress
from spec_cpu.train.generate import Plan
from spec_cpu.train.generate import generate as generate_shards
from spec_cpu.train.held_out import Acceptance
from spec_cpu.train.learner import KINDS
from spec_cpu.train.script import Template
from spec_cpu.train.training import Progress as Step
from spec_cpu.train.training import Settings
from spec_cpu.train.work import Work

GENERATE, TRAIN = "generate", "train"
_DATA_SHARE, _TRAIN_SHARE = 0.4, 0.5  # of the hours; the rest is for looking at the result
_HELD_OUT_SEED = 2**32  # added to the seed, for other text than what is learnt
_ENDLESS = 2**62
_FEWEST_EPOCHS, _MOST_EPOCHS = 1.0, 40.0
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Tick:
    """How far a step is.

    Attributes:
        what: it does, in words.
        done, total: tokens; in training a token counts each time that it is learnt from.
        rate: tokens a second.
        acceptance: the latest, held out: greedy, by depth. Empty until there is one.
    """

    what: str
    done: int
    total: int
    rate: float
    acceptance: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class How:
    """What a step works with, and who is told how far it is.

    Attributes:
        threads: default: one a physical core.
        kernels: as for `load`.
        tick: told how far a step is; may raise KeyboardInterrupt to stop it.
        progress: told of what comes before: kernels that are compiled, models that are loaded.
        note: told what a person should know.
    """

    threads: int | None = None
    kernels: str = defaults.KERNELS
    tick: Callable[[Tick], None] = lambda _tick: None
    progress: Progress | None = None
    note: Callable[[str], None] = lambda _note: None


def generate(target: Path, work: Work, how: How) -> None:
    """Let the target talk: one shard to judge by, then shards to learn from.

    Raises:
        UsageError, ModelError, ContextError: as for `heads.generate.generate`.
        ModelError: no head can draft for this target.
        SpecCpuError: the disk is full, or too small.
    """
    if work.generated and not work.lacks_shards:
        return
    kernels = Kernels(how.kernels, threads=how.threads, progress=how.progress)
    library = kernels.library_for(target, how.progress)
    with Model(target, kernels=library) as model, work.timed(GENERATE):
        _check_target(model)
        _check_disk(model, work)
        Template.of(model)  # raises before anything is generated, or finds a reason for a notice
        for notice in (kernels.notice, model.chat_template.notice):
            if notice:
                how.note(notice)
        budget = None if work.hours is None else work.hours * _HOUR * _DATA_SHARE
        clock = _Clock(budget, work.spent.get(GENERATE, 0.0), how.tick)
        generate_shards(
            model,
            work.held_out.folder,
            Plan(1, seed=work.seed + _HELD_OUT_SEED, prompts=work.held_out_prompts),
            threads=how.threads,
            progress=clock.judging,
        )
        clock.shards = len(work.data)
        generate_shards(
            model,
            work.data.folder,
            Plan(work.tokens or _ENDLESS, seed=work.seed, prompts=work.learnt_prompts),
            threads=how.threads,
            progress=clock.learning,
            until=clock.is_over,
            shards=work.shards or None,  # as many as there were, if some are gone
        )
        work.generated, work.shards = True, len(work.data)


class _Clock:
    """Decides when to stop generating: after the shard that ends nearest to the budget.

    Attributes:
        shards: complete before `is_over` was asked first.
    """

    def __init__(self, budget: float | None, spent: float, tick: Callable[[Tick], None]) -> None:
        self._budget = budget
        self._start = perf_counter() - spent
        self._tick = tick
        self._asked: list[float] = []
        self.shards = 0

    def is_over(self) -> bool:
        now = perf_counter()
        self._asked.append(now)
        if self._budget is None or self.shards + len(self._asked) == 1:
            return False
        last = now - self._asked[-2] if len(self._asked) > 1 else 0.0
        return now - self._start + last / 2 > self._budget

    def judging(self, done: int, total: int, rate: float) -> None:
        self._tick(Tick("generating held-out text", done, total, rate))

    def learning(self, done: int, total: int, rate: float) -> None:
        if self._budget is not None:
            left = max(0.0, self._budget - (perf_counter() - self._start))
            total = done + max(1, round(rate * left))
        self._tick(Tick("generating text", done, total, rate))


def train(target: Path, work: Work, out: Path, quantization: str, how: How) -> Acceptance:
    """Train on what was generated, and write the head to `out`.

    Returns:
        What torch finds on the held-out text.

    Raises:
        UsageError: too little data, or a damaged file.
        ContextError: too little memory.
        SpecCpuError: a file cannot be written.
    """
    import torch

    if work.lacks_shards:
        raise UsageError(
            f"shards are gone that {work.folder} had: run the command without `only`, and they are "
            "made again"
        )
    torch.set_num_threads(hardware.threads(how.threads))
    with work.timed(TRAIN):
        with Model(target) as model:
            learner = KINDS[work.kind](model, work)
        if work.epochs is None:
            work.epochs = _epochs(work, learner.epochs_in)
            work.save()
        acceptance = learner.train(work.epochs, _told(how.tick))
    try:
        learner.write(
            out, quantization=quantization, acceptance=acceptance, card=_card(work, work.epochs)
        )
    except OSError as error:
        raise SpecCpuError(
            f"cannot write {out}: {error.strerror}; what was trained is kept in {work.folder}"
        ) from None
    return acceptance


def _epochs(work: Work, epochs_in: Callable[[float], float]) -> float:
    if work.hours is None:
        return Settings().epochs
    late = max(0.0, work.spent.get(GENERATE, 0.0) - work.hours * _HOUR * _DATA_SHARE)
    seconds = work.hours * _HOUR * _TRAIN_SHARE - late
    return round(min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, epochs_in(seconds))), 2)


def _told(tick: Callable[[Tick], None]) -> Callable[[Step], None]:
    def tell(step: Step) -> None:
        known = step.acceptance.greedy if step.acceptance else ()
        done, total = step.step * step.rows, step.steps * step.rows
        tick(Tick("training", done, total, step.rate, known))

    return tell


def _card(work: Work, epochs: float) -> str:
    manifest = work.data.manifest()
    tokens = len(work.data) * manifest.sequences * manifest.length
    turns = "conversations"
    if work.prompts:
        turns += f", half on {len(work.learnt_prompts)} prompts"
    return (
        f"spec-cpu {__version__}, {date.today()}: {work.kind}, {tokens:,} tokens of "
        f"{work.target}'s own {turns}, {epochs:g} epochs, seed {work.seed}"
    )


def _check_target(target: Model) -> None:
    if target.why_no_drafts:
        raise ModelError(f"{target.why_no_drafts}: no head can draft for it")


def _check_disk(target: Model, work: Work) -> None:
    """Raise before hours are spent on data that there is no room for."""
    if work.tokens is None:
        return
    needed = work.tokens * (2 * target.n_embd + 128)
    done = sum(file.stat().st_size for file in work.data.folder.glob("*.npz"))
    free = shutil.disk_usage(work.folder).free
    if needed - done > free:
        raise SpecCpuError(
            f"{work.tokens:,} tokens of {target.path.name} take about {needed / 1e9:.1f} GB on "
            f"disk, but {work.folder} has {free / 1e9:.1f} GB: give fewer `tokens`, or `resume` "
            "on another disk"
        )
