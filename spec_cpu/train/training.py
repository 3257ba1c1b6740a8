"""Training of a head: loss, schedule, acceptance by depth."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from spec_cpu import defaults
from spec_cpu.errors import UsageError
from spec_cpu.train.batches import Batch, Vocabulary, batch_of, batches_of
from spec_cpu.train.checkpoint import Best, Checkpoint
from spec_cpu.train.held_out import Acceptance, accepted, mixed
from spec_cpu.train.loss import soft_cross_entropy
from spec_cpu.train.shards import ShardStore

ROWS_A_STEP = 4096  # tokens that a step of the optimizer learns from
_WARM_UP = 0.03  # of all steps
_LEAST_RATE = 0.05  # of the peak, at the end
_CLIP = 1.0
_LOSS_DECAY = 0.8  # of each further step's loss
_EVALUATIONS = 25  # in a whole training


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        epochs: passes over the data.
        depth: steps that the head drafts on its own features, in training.
        deepen: the share of the training that has a single step.
        rate: peak learning rate; `output_rate` is that of the output matrix.
        decay: weight decay.
        patience: the share of the deep part after which it ends if held-out acceptance has not
            grown meanwhile.
        seed: of the order of the data and of the first weights.
    """

    epochs: float = defaults.TRAIN_EPOCHS
    depth: int = 3
    deepen: float = 0.75
    rate: float = 1.5e-3
    output_rate: float = 5e-4
    decay: float = 0.02
    patience: float = 0.4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after each step: how far it is, the loss, rows (tokens) a second, the last acceptance.

    Attributes:
        rows: of a step, about.
    """

    step: int
    steps: int
    loss: float
    rows: int
    rate: float
    acceptance: Acceptance | None


class Pupil(Protocol):
    """A network in training, and how it drafts.

    Attributes:
        output: its last layer, which gives the logits of the reduced vocabulary.
        depth: to which acceptance is measured.
    """

    @property
    def net(self) -> nn.Module: ...

    @property
    def output(self) -> nn.Linear: ...

    @property
    def depth(self) -> int: ...

    def draft(self, batch: Batch, depth: int) -> list[Tensor]:
        """What `output` makes the d-th drafted token of, d = 1 .. `depth`: (B, T, n_embd) each.

        Row i is about what follows token i + 1, said by a draft that begins d - 1 tokens earlier.
        """
        ...

    def extra_loss(self, hidden: Tensor, next_features: Tensor) -> Tensor | float:
        """What it is to learn besides what follows: the loss of each row of `draft`'s, (N, n_embd).

        Args:
            next_features: (N, n_embd): the target's of token i + 1.
        """
        ...


@dataclass(slots=True)
class Trainer:
    """Trains `pupil` on the shards of `store`.

    What was trained is kept in `folder`, in a checkpoint: the same trainer goes on from there.

    Attributes:
        held_out: one shard that nothing is learnt from.
        at_a_time: conversations whose activations are held in memory together; None: all of a step.
            Fewer take longer; what is learnt is the same but for rounding.
        steps: in all.

    Raises:
        UsageError: too little data.
    """

    pupil: Pupil
    store: ShardStore
    held_out: ShardStore
    vocabulary: Vocabulary
    settings: Settings
    folder: Path
    at_a_time: int | None = None
    steps: int = field(init=False)
    _shards: int = field(init=False)
    _sequences: int = field(init=False)
    _batch: int = field(init=False)
    _step: int = field(default=0, init=False)
    _best: Best | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        manifest = self.store.manifest()
        self._shards, self._sequences = len(self.store), manifest.sequences
        self._batch = conversations_a_step(manifest.length)
        if not self._shards or not len(self.held_out):
            raise UsageError(f"{self.folder} has too little data to train on: generate more")
        self.steps = max(1, round(self.settings.epochs * self.steps_an_epoch))

    @property
    def net(self) -> nn.Module:
        """What is trained."""
        return self.pupil.net

    @property
    def steps_an_epoch(self) -> int:
        return self._shards * -(-self._sequences // self._batch)

    def train(
        self, progress: Callable[[Progress], None], *, evaluate_every: int | None = None
    ) -> Acceptance:
        """Train to the end, or go on from the last checkpoint; `net` is left at its best.

        Args:
            progress: may raise KeyboardInterrupt to stop: what was trained is kept.

        Raises:
            UsageError: the checkpoint is of other data or settings.
            SpecCpuError: it cannot be written.
        """
        every = evaluate_every or max(1, self.steps // _EVALUATIONS)
        optimizer = self._optimizer()
        stopped = self._checkpoint.read(self.net, optimizer)
        if stopped is not None:
            self._step, self._best = stopped
        start, rows = perf_counter(), 0
        for batch in self._batches():
            if self._is_stale:
                break
            self._set_rates(optimizer)
            loss = self._update(batch, optimizer, self._depth)
            self._step += 1
            rows += batch.next_tokens.numel()
            if self._step % every == 0 or self._step == self.steps:
                self._judge()
                self._checkpoint.write(self.net, optimizer, self._step, self._best)
            told = Progress(
                self._step,
                self.steps,
                loss,
                batch.next_tokens.numel(),
                rows / (perf_counter() - start),
                self._best.acceptance if self._best else None,
            )
            try:
                progress(told)
            except KeyboardInterrupt:
                self._checkpoint.write(self.net, optimizer, self._step, self._best)
                raise
        if self._best is None:
            self._judge()
        assert self._best is not None
        self.net.load_state_dict(self._best.weights)
        return self._best.acceptance

    def epochs_in(self, seconds: float) -> float:
        """How many epochs that time is enough for, evaluations included, by a short trial.

        The net is left as it was.
        """
        before = copy.deepcopy(self.net.state_dict())
        optimizer, batch = self._optimizer(), next(self._batches())

        def timed(work: Callable[[], object]) -> float:
            work()  # the first time takes longer
            start = perf_counter()
            work()
            return perf_counter() - start

        shallow, deep = (
            timed(partial(self._update, batch, optimizer, depth))
            for depth in (1, self.settings.depth)
        )
        some = batch.part(slice(self._together))
        evaluations = _EVALUATIONS * -(-self._sequences // self._together)
        seconds -= evaluations * timed(partial(self._accepted, some))
        self.net.load_state_dict(before)
        step = self.settings.deepen * shallow + (1.0 - self.settings.deepen) * deep
        return seconds / (step * self.steps_an_epoch)

    def evaluate(self) -> Acceptance:
        """On the shard that is held out."""
        counts = torch.zeros(self.pupil.depth, 4)
        self.net.eval()
        for batch in batches_of(self.held_out.read(0), self.vocabulary, self._together):
            counts += self._accepted(batch)
        self.net.train()
        return Acceptance.of(counts)

    def _accepted(self, batch: Batch) -> Tensor:
        with torch.no_grad(), mixed():
            hiddens = self.pupil.draft(batch, self.pupil.depth)
        return accepted(self.pupil.output, batch, hiddens)

    @property
    def _depth(self) -> int:
        """Of the next step of training."""
        return self.settings.depth if self._step >= self.settings.deepen * self.steps else 1

    @property
    def _is_stale(self) -> bool:
        """Has held-out acceptance not grown for too long?"""
        if self._best is None:
            return False
        since = max(self._best.step, self.settings.deepen * self.steps)
        deep = (1.0 - self.settings.deepen) * self.steps
        return self._step - since > self.settings.patience * deep

    def _judge(self) -> None:
        acceptance = self.evaluate()
        if self._best is None or acceptance.expected > self._best.acceptance.expected:
            weights = {name: value.clone() for name, value in self.net.state_dict().items()}
            self._best = Best(self._step, acceptance, weights)

    @property
    def _together(self) -> int:
        return self._batch if self.at_a_time is None else min(self.at_a_time, self._batch)

    def _update(self, batch: Batch, optimizer: torch.optim.Optimizer, depth: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        size = self._together
        loss = sum(
            self._add_gradient(batch, slice(begin, begin + size), depth)
            for begin in range(0, len(batch.weights), size)
        )
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), _CLIP)
        optimizer.step()
        return loss / sum(_LOSS_DECAY**step for step in range(depth))

    def _add_gradient(self, batch: Batch, chosen: slice, depth: int) -> float:
        """Of some conversations' part in the loss of the batch, which is returned."""
        part = batch.part(chosen)
        with mixed():
            hiddens = self.pupil.draft(part, depth)
            loss = torch.zeros(())
            for step, hidden in enumerate(hiddens):
                rows = part.weights.clone()
                rows[:, :step] = 0.0
                share = rows.sum() / batch.weights[:, step:].sum().clamp_min(1e-6)
                loss = loss + _LOSS_DECAY**step * share * self._loss(part, hidden, rows)
        loss.backward()
        return float(loss.detach())

    def _loss(self, batch: Batch, hidden: Tensor, weights: Tensor) -> Tensor:
        """Cross-entropy against the target's distribution, and what else there is to learn."""
        chosen = weights > 0
        weights = weights[chosen]
        hidden = hidden[chosen]
        extra = self.pupil.extra_loss(hidden, batch.next_features[chosen]) * weights
        mean: Tensor = extra.sum() / weights.sum().clamp_min(1e-6)
        return mean + soft_cross_entropy(
            hidden,
            self.pupil.output.weight,
            batch.ids[chosen].clamp_min(0),
            batch.chances[chosen],
            weights,
        )

    def _optimizer(self) -> torch.optim.AdamW:
        output = [self.pupil.output.weight]
        rest = [p for p in self.net.parameters() if p is not output[0]]
        matrices, vectors = [p for p in rest if p.ndim > 1], [p for p in rest if p.ndim < 2]
        return torch.optim.AdamW(
            [
                {
                    "params": matrices,
                    "weight_decay": self.settings.decay,
                    "peak": self.settings.rate,
                },
                {"params": vectors, "weight_decay": 0.0, "peak": self.settings.rate},
                {"params": output, "weight_decay": 0.0, "peak": self.settings.output_rate},
            ],
            betas=(0.9, 0.95),
            fused=True,
        )

    def _set_rates(self, optimizer: torch.optim.Optimizer) -> None:
        done = self._step / self.steps
        warm = min(1.0, done / _WARM_UP) if done < _WARM_UP else 1.0
        cosine = _LEAST_RATE + (1 - _LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * max(warm, 1e-3) * cosine

    def _batches(self) -> Iterator[Batch]:
        """The batches from the present step on; the order is the same whenever it is asked."""
        step, size = 0, self._batch
        for epoch in itertools.count():
            order = np.random.default_rng([self.settings.seed, epoch])
            for number in order.permutation(self._shards):
                sequences = order.permutation(self._sequences)
                parts = [sequences[i : i + size] for i in range(0, len(sequences), size)]
                shard = None
                for part in parts:
                    step += 1
                    if step > self.steps:
                        return
                    if step > self._step:
                        shard = self.store.read(int(number)) if shard is None else shard
                        yield batch_of(shard, self.vocabulary, part)

    @property
    def _checkpoint(self) -> Checkpoint:
        made_with = {
            "settings": asdict(self.settings),
            "steps": self.steps,
            "shards": self._shards,
            "tokens": self.vocabulary.tokens.tolist(),
        }
        return Checkpoint(self.folder / "checkpoint.pt", made_with)


def conversations_a_step(length: int) -> int:
    """Conversations of `length` tokens that a step of the optimizer learns from."""
    return max(1, ROWS_A_STEP // length)


def spread(rows: Tensor) -> Tensor:
    """The standard deviation of each column of (N, n_embd), never 0: (n_embd,)."""
    return rows.float().std(0).clamp_min(1e-4)


def sample_features(store: ShardStore) -> Tensor:
    """Some of the target's features: (N, n_embd) float16."""
    features = store.read(0).features
    return torch.from_numpy(features.reshape(-1, features.shape[-1]))
