"""Kinds of heads: how each learns, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from spec_cpu.errors import ContextError, UsageError
from spec_cpu.heads.container import EAGLE, MEDUSA
from spec_cpu.heads.eagle import write_eagle
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.heads.medusa import write_medusa
from spec_cpu.llama.model import Model
from spec_cpu.machine import hardware
from spec_cpu.train.batches import Vocabulary, batches_of
from spec_cpu.train.eagle import QUERIES, EagleShape
from spec_cpu.train.eagle_pupil import EaglePupil, Scales
from spec_cpu.train.export import eagle_weights, medusa_weights
from spec_cpu.train.held_out import Acceptance
from spec_cpu.train.loss import ROWS
from spec_cpu.train.medusa import HEADS
from spec_cpu.train.start import eagle_net, embeddings, medusa_pupil, shape_of
from spec_cpu.train.training import (
    Progress,
    Pupil,
    Settings,
    Trainer,
    conversations_a_step,
    sample_features,
)
from spec_cpu.train.work import Work

_MEMORY = (
    4.5e9  # bytes that training may take: fewer conversations at a time if they would take more
)
_LIBRARIES = 7e8  # bytes that torch and llama.cpp take before anything is learnt
_A_WEIGHT = 20  # bytes: it, its gradient, two moments, and the best so far
_A_LOGIT = 12  # bytes: it, its gradient, and what the loss makes of it
_A_SCORE = 16  # bytes: of a query for a key, likewise
_AN_ACTIVATION = 60  # likewise, of all else that is as wide as a feature


class Write(Protocol):
    """Writes a head as it is. Errors: those of `container.written`, and OSError."""

    def __call__(
        self, path: Path, *, quantization: str, acceptance: Acceptance, card: str
    ) -> None: ...


class Learner:
    """A head in training, of whatever kind; made by one of `KINDS`."""

    def __init__(
        self,
        pupil: Pupil,
        vocabulary: Vocabulary,
        settings: Settings,
        work: Work,
        at_a_time: int,
        write: Write,
    ) -> None:
        """Raises UsageError: too little data.

        Args:
            settings: of which `work` decides the seed, and `train` the epochs.
            at_a_time: conversations.
        """
        self._pupil = pupil
        self._vocabulary = vocabulary
        self._settings = settings
        self._work = work
        self._at_a_time = at_a_time
        self.write = write
        self._trainer = self._prepared(1.0)

    def epochs_in(self, seconds: float) -> float:
        """How many epochs that time is enough for, by a short trial."""
        return self._trainer.epochs_in(seconds)

    def train(self, epochs: float, progress: Callable[[Progress], None]) -> Acceptance:
        """Train to the end, or go on from the last checkpoint. Errors: `Trainer.train`."""
        self._trainer = self._prepared(epochs)
        return self._trainer.train(progress)

    def _prepared(self, epochs: float) -> Trainer:
        return Trainer(
            self._pupil,
            self._work.data,
            self._work.held_out,
            self._vocabulary,
            replace(self._settings, epochs=epochs, seed=self._work.seed),
            self._work.folder,
            self._at_a_time,
        )


def eagle_learner(target: Model, work: Work) -> Learner:
    """An EAGLE head; `target` may be closed once this is made.

    Raises:
        UsageError: too little data.
        ContextError: too little memory.
    """
    settings = Settings()
    vocabulary = Vocabulary.most_likely(work.data, target.vocab.n, work.vocabulary)
    shape = shape_of(target, len(vocabulary.tokens))
    at_a_time = _at_a_time(
        target,
        work,
        _eagle_size(shape),
        depth=settings.depth,
        outputs=shape.n_vocab,
        n_ff=shape.n_ff,
        n_head=shape.n_head,
    )
    net = eagle_net(target, shape, vocabulary.tokens, work.seed)
    table = embeddings(target)
    pupil = EaglePupil(net, table, Scales.of(work.data, vocabulary, table))
    made_for, n_ctx = HeadTarget.of(target), target.n_ctx_train

    def write(path: Path, *, quantization: str, acceptance: Acceptance, card: str) -> None:
        weights = eagle_weights(net, pupil.scales, vocabulary.tokens, n_ctx=n_ctx)
        write_eagle(
            path,
            weights,
            made_for,
            quantization=quantization,
            acceptance=acceptance.greedy,
            card=card,
        )

    return Learner(pupil, vocabulary, settings, work, at_a_time, write)


def medusa_learner(target: Model, work: Work) -> Learner:
    """Medusa heads; arguments and errors as for `eagle_learner`."""
    settings = Settings(depth=HEADS, deepen=0.0)
    vocabulary = Vocabulary.most_likely(work.data, target.vocab.n, work.vocabulary)
    n, outputs = target.n_embd, len(vocabulary.tokens)
    size = n * (HEADS * n + outputs)
    at_a_time = _at_a_time(target, work, size, depth=HEADS, outputs=outputs)
    pupil = medusa_pupil(target, vocabulary.tokens, sample_features(work.data))
    made_for = HeadTarget.of(target)

    def write(path: Path, *, quantization: str, acceptance: Acceptance, card: str) -> None:
        accuracy = pupil.accuracy(batches_of(work.held_out.read(0), vocabulary, at_a_time))
        write_medusa(
            path,
            medusa_weights(pupil.net, pupil.spread, vocabulary.tokens, accuracy),
            made_for,
            quantization=quantization,
            acceptance=acceptance.greedy,
            card=card,
        )

    return Learner(pupil, vocabulary, settings, work, at_a_time, write)


KINDS: dict[str, Callable[[Model, Work], Learner]] = {
    EAGLE: eagle_learner,
    MEDUSA: medusa_learner,
}


def check_kind(kind: str) -> None:
    """Raises UsageError: no such kind of head."""
    if kind not in KINDS:
        raise UsageError(f"kind must be one of {', '.join(KINDS)}, not {kind}")


def _eagle_size(shape: EagleShape) -> int:
    """Weights, but the embeddings that it takes from its target."""
    d = shape.n_embd
    kv = shape.n_head_kv * shape.n_rot
    return d * (2 * d + 2 * d + 2 * kv + 3 * shape.n_ff + shape.n_vocab)


def _at_a_time(
    target: Model,
    work: Work,
    weights: int,
    *,
    depth: int,
    outputs: int,
    n_ff: int = 0,
    n_head: int = 0,
) -> int:
    """How many conversations to train on at a time, `depth` steps deep.

    Not by what is free: the same seed gives the same head.

    Raises:
        ContextError: too little memory.
    """
    d, length = target.n_embd, work.data.manifest().length
    logits = ROWS * _A_LOGIT * outputs
    fixed = _LIBRARIES + _A_WEIGHT * weights + logits + 2 * target.vocab.n * d
    each = length * (depth * _AN_ACTIVATION * (d + n_ff) + n_head * QUERIES * _A_SCORE)
    n = int(min(conversations_a_step(length), max(1.0, (_MEMORY - fixed) / each)))
    needed, available = fixed + n * each, hardware.available_memory()
    if available is not None and needed > available:
        raise ContextError(
            f"training this head needs about {needed / 1e9:.1f} GB of memory, but "
            f"{available / 1e9:.1f} GB are free: close other programs, or give a smaller "
            "`vocabulary`"
        )
    return n
