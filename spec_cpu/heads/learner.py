"""Kinds of heads, each behind one Protocol: how it learns, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from spec_cpu import machine
from spec_cpu.errors import ContextError, UsageError
from spec_cpu.heads.batches import Vocabulary
from spec_cpu.heads.eagle import EagleShape
from spec_cpu.heads.export import eagle_weights
from spec_cpu.heads.file import EAGLE, HeadTarget, write_eagle
from spec_cpu.heads.held_out import Acceptance
from spec_cpu.heads.start import eagle_net, embeddings, shape_of
from spec_cpu.heads.training import BATCH, Progress, Settings, Trainer
from spec_cpu.heads.work import Work
from spec_cpu.llama.model import Model

_LIBRARIES = 7e8  # bytes that torch and llama.cpp take before anything is learnt
_A_WEIGHT = 20  # bytes: it, its gradient, two moments, and the best so far
_AN_OUTPUT = 12  # bytes: a logit of a row, its gradient, and what the loss makes of it
_AN_ACTIVATION = 60  # likewise, of all else that is as wide as a feature


class Learner(Protocol):
    """A head in training."""

    def epochs_in(self, seconds: float) -> float:
        """How many epochs that time is enough for, by a short trial."""
        ...

    def train(self, epochs: float, progress: Callable[[Progress], None]) -> Acceptance:
        """Train to the end, or go on from the last checkpoint. Errors: `Trainer.train`."""
        ...

    def write(self, path: Path, *, quantization: str, acceptance: Acceptance, card: str) -> None:
        """Write the head as it is. Errors: `write_eagle`, and OSError."""
        ...


class EagleLearner:
    """An EAGLE head in training; `target` may be closed once this is made."""

    def __init__(self, target: Model, work: Work) -> None:
        """Raises UsageError: too little data. ContextError: too little memory."""
        length = work.data.manifest().length
        vocabulary = Vocabulary.most_likely(work.data, target.vocab.n, work.vocabulary)
        shape = shape_of(target, len(vocabulary.tokens))
        _check_memory(shape, target.vocab.n, length)
        self._net = eagle_net(target, shape, vocabulary.tokens, work.seed)
        self._embeddings = embeddings(target)
        self._vocabulary = vocabulary
        self._work = work
        self._target = HeadTarget.of(target)
        self._n_ctx = target.n_ctx_train
        self._trainer = self._prepared(1.0)

    def epochs_in(self, seconds: float) -> float:
        return seconds / (self._trainer.seconds_a_step() * self._trainer.steps_an_epoch)

    def train(self, epochs: float, progress: Callable[[Progress], None]) -> Acceptance:
        self._trainer = self._prepared(epochs)
        return self._trainer.train(progress)

    def write(self, path: Path, *, quantization: str, acceptance: Acceptance, card: str) -> None:
        weights = eagle_weights(
            self._net, self._trainer.scales, self._vocabulary.tokens, n_ctx=self._n_ctx
        )
        write_eagle(
            path,
            weights,
            self._target,
            quantization=quantization,
            acceptance=acceptance.greedy,
            card=card,
        )

    def _prepared(self, epochs: float) -> Trainer:
        return Trainer(
            self._net,
            self._work.data,
            self._work.held_out,
            self._vocabulary,
            self._embeddings,
            Settings(epochs=epochs, seed=self._work.seed),
            self._work.folder,
        )


KINDS: dict[str, Callable[[Model, Work], Learner]] = {EAGLE: EagleLearner}


def check_kind(kind: str) -> None:
    """Raises UsageError: no such kind of head."""
    if kind not in KINDS:
        raise UsageError(f"kind must be one of {', '.join(KINDS)}, not {kind}")


def _check_memory(shape: EagleShape, n_vocab: int, length: int) -> None:
    d, depth = shape.n_embd, Settings().depth
    kv = shape.n_head_kv * shape.n_rot
    weights = d * (2 * d + 2 * d + 2 * kv + 3 * shape.n_ff + shape.n_vocab)
    rows = BATCH * length * depth
    activations = rows * (_AN_OUTPUT * shape.n_vocab + _AN_ACTIVATION * (d + shape.n_ff))
    needed = _LIBRARIES + _A_WEIGHT * weights + activations + 2 * n_vocab * d
    available = machine.available_memory()
    if available is not None and needed > available:
        raise ContextError(
            f"training this head needs about {needed / 1e9:.1f} GB of memory, but "
            f"{available / 1e9:.1f} GB are free: close other programs, or give a smaller "
            "--vocabulary"
        )
