"""Training of an EAGLE head: loss, schedule, acceptance by depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.heads.batches import Batch, Vocabulary, batch_of
from spec_cpu.heads.eagle import EagleNet, KeysValues
from spec_cpu.heads.shards import ShardStore

_BATCH = 16  # conversations
_WARM_UP = 0.03  # of all steps
_LEAST_RATE = 0.05  # of the peak, at the end
_CLIP = 1.0
_LOSS_DECAY = 0.8  # of each further step's loss
_FEATURES = 0.2  # weight of the distance to the true features
_CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        epochs: passes over the data.
        depth: steps that the head drafts on its own features, in training.
        deepen: the share of the training that has a single step.
        rate: peak learning rate; `output_rate` is that of the output matrix.
        decay: weight decay.
        seed: of the order of the data and of the first weights.
    """

    epochs: float = 10.0
    depth: int = 3
    deepen: float = 0.5
    rate: float = 1.5e-3
    output_rate: float = 5e-4
    decay: float = 0.02
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Held-out acceptance of each drafted token, given that those before it were accepted.

    Attributes:
        greedy: at temperature 0: the share of positions where head and target agree.
        overlap: at temperature 1: the mean of sum min(p, q) = 1 - TV, over the likeliest tokens.
    """

    greedy: list[float]
    overlap: list[float]

    @property
    def expected(self) -> float:
        """Tokens that a greedy chain of this depth brings, the target's own included."""
        total = reached = 1.0
        for chance in self.greedy:
            reached *= chance
            total += reached
        return total


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after each step: how far it is, the loss, rows a second, the last acceptance."""

    step: int
    steps: int
    loss: float
    rate: float
    acceptance: Acceptance | None


@dataclass(slots=True)
class Scales:
    """What features and embeddings are divided by before they are combined: (n_embd,) each."""

    features: Tensor
    embeddings: Tensor


@dataclass(slots=True)
class Trainer:
    """Trains `net` on the shards of `store`, the last of which is held out.

    Attributes:
        embeddings: (n_vocab, n_embd) float32: the target's.
    """

    net: EagleNet
    store: ShardStore
    vocabulary: Vocabulary
    embeddings: Tensor
    settings: Settings
    folder: Path
    scales: Scales = field(init=False)
    _shards: int = 0
    _step: int = 0

    def __post_init__(self) -> None:
        if len(self.store) < 2:
            raise UsageError(f"{self.store.folder} has too little data to train on: generate more")
        self._shards = len(self.store) - 1  # more may come meanwhile
        self.scales = Scales(_feature_scale(self.store), self.embeddings.std(0).clamp_min(1e-4))

    @property
    def steps(self) -> int:
        """In all."""
        per_shard = -(-self.store.manifest().sequences // _BATCH)
        return max(1, round(self.settings.epochs * self._shards * per_shard))

    def train(
        self, progress: Callable[[Progress], None], *, evaluate_every: int = 100
    ) -> Acceptance:
        """Train to the end, or go on from the last checkpoint."""
        optimizer = self._optimizer()
        self._load(optimizer)
        start, rows = perf_counter(), 0
        acceptance: Acceptance | None = None
        for batch in self._batches():
            self._set_rates(optimizer)
            loss = self._update(batch, optimizer)
            self._step += 1
            rows += batch.next_tokens.numel()
            if self._step % evaluate_every == 0 or self._step == self.steps:
                acceptance = self.evaluate()
                self._save(optimizer)
            speed = rows / (perf_counter() - start)
            progress(Progress(self._step, self.steps, loss, speed, acceptance))
        return acceptance or self.evaluate()

    def evaluate(self, depth: int = 5) -> Acceptance:
        """On the shard that is held out."""
        shard = self.store.read(self._shards)
        chosen = np.arange(len(shard.tokens))
        counts = torch.zeros(depth, 4)
        self.net.eval()
        for begin in range(0, len(chosen), _BATCH):
            batch = batch_of(shard, self.vocabulary, chosen[begin : begin + _BATCH])
            with torch.no_grad(), _mixed():
                hiddens = self._draft(batch, depth)
            counts += _accepted(self.net, batch, hiddens)
        self.net.train()
        greedy = (counts[:, 0] / counts[:, 1].clamp_min(1.0)).tolist()
        overlap = (counts[:, 2] / counts[:, 3].clamp_min(1.0)).tolist()
        return Acceptance(greedy, overlap)

    def _update(self, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
        deep = self._step >= self.settings.deepen * self.steps
        with _mixed():
            hiddens = self._draft(batch, self.settings.depth if deep else 1)
            loss = torch.zeros(())
            for step, hidden in enumerate(hiddens):
                rows = batch.weights.clone()
                rows[:, :step] = 0.0
                loss = loss + _LOSS_DECAY**step * self._loss(batch, hidden, rows)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), _CLIP)
        optimizer.step()
        return float(loss.detach()) / sum(_LOSS_DECAY**step for step in range(len(hiddens)))

    def _draft(self, batch: Batch, depth: int) -> list[Tensor]:
        """The head's features of token i + 1 in each step of drafting: (B, T, n_embd)."""
        embedded = functional.embedding(batch.next_tokens, self.embeddings) / self.scales.embeddings
        features = batch.features
        before: list[KeysValues] = []
        hiddens: list[Tensor] = []
        for _ in range(depth):
            hidden = self.net(features / self.scales.features, embedded, before)
            hiddens.append(hidden)
            # Row i of the next step: what this one made of token i, seen from token i - 1.
            features = functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
        return hiddens

    def _loss(self, batch: Batch, hidden: Tensor, weights: Tensor) -> Tensor:
        """Cross-entropy against the target's distribution, and the distance to its features."""
        chosen = weights > 0
        weights = weights[chosen]
        hidden = hidden[chosen]
        logits = self.net.output(hidden)
        chances, ids = batch.chances[chosen], batch.ids[chosen].clamp_min(0)
        logs = logits.gather(1, ids).float() - logits.float().logsumexp(1, keepdim=True)
        entropy = -(chances * logs).sum(1)
        away = (hidden.float() - batch.next_features[chosen]) / self.scales.features
        distance = functional.smooth_l1_loss(
            away, torch.zeros(()).expand_as(away), reduction="none"
        )
        return ((entropy + _FEATURES * distance.mean(1)) * weights).sum() / weights.sum()

    def _optimizer(self) -> torch.optim.AdamW:
        output = [self.net.output.weight]
        rest = [p for p in self.net.parameters() if p is not self.net.output.weight]
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
        step = 0
        for epoch in itertools.count():
            order = np.random.default_rng([self.settings.seed, epoch])
            for number in order.permutation(self._shards):
                sequences = order.permutation(self.store.manifest().sequences)
                parts = [sequences[i : i + _BATCH] for i in range(0, len(sequences), _BATCH)]
                shard = None
                for part in parts:
                    step += 1
                    if step > self.steps:
                        return
                    if step > self._step:
                        shard = self.store.read(int(number)) if shard is None else shard
                        yield batch_of(shard, self.vocabulary, part)

    def _save(self, optimizer: torch.optim.Optimizer) -> None:
        file = self.folder / _CHECKPOINT
        part = file.with_suffix(".part")
        state = {
            "net": self.net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": self._step,
            "settings": asdict(self.settings),
        }
        try:
            torch.save(state, part)
            part.replace(file)
        except (OSError, RuntimeError) as error:
            part.unlink(missing_ok=True)
            raise SpecCpuError(f"cannot write {file}: {error}") from None

    def _load(self, optimizer: torch.optim.Optimizer) -> None:
        file = self.folder / _CHECKPOINT
        if not file.exists():
            return
        state = torch.load(file, weights_only=True)
        if state["settings"] != asdict(self.settings):
            raise UsageError(f"{file} was trained with other settings: use those, or delete it")
        self.net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        self._step = state["step"]


def _feature_scale(store: ShardStore) -> Tensor:
    features = store.read(0).features.astype(np.float32)
    return torch.from_numpy(features.reshape(-1, features.shape[-1]).std(0)).clamp_min(1e-4)


def _accepted(net: EagleNet, batch: Batch, hiddens: Sequence[Tensor]) -> Tensor:
    """By depth: greedy acceptances, positions tried; the sum of overlaps, positions counted.

    The text of a batch stands for what was drafted before: where it is the likeliest all along it
    is what a greedy head drafts if it is right. Depth d, from row i: token i + 1 + d, by what step
    d says in row i + d - 1.
    """
    counts = torch.zeros(len(hiddens), 4)
    right = torch.ones_like(batch.weights, dtype=torch.bool)
    said = batch.weights == 1.0
    greedy = batch.greedy[:, None]
    for step, hidden in enumerate(hiddens):
        with torch.no_grad(), _mixed():
            logits = net.output(hidden).float()
        agrees = logits.argmax(-1) == batch.ids[..., 0]
        q = logits.gather(-1, batch.ids.clamp_min(0)) - logits.logsumexp(-1, keepdim=True)
        overlap = torch.minimum(q.exp(), batch.chances).sum(-1)
        rows = said.clone()
        rows[:, :step] = False
        tried = rows & right & greedy
        counts[step] = torch.stack(
            (
                (agrees & tried).sum(),
                tried.sum(),
                (overlap * (rows & ~greedy)).sum(),
                (rows & ~greedy).sum(),
            )
        )
        # Seen from the next token, what was right here is what was accepted before.
        right = functional.pad(right & agrees, (1, 0))[:, :-1]
    return counts


def _mixed() -> torch.autocast:
    """Matrix products in bfloat16, which processors with AMX multiply many times as fast."""
    return torch.autocast("cpu", torch.bfloat16)
