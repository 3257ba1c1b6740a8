"""The data a head learns from: the target talking to itself, many conversations in one batch.

Every pass feeds one token of each conversation, so that all of them advance together and a shard is
done after as many passes as its conversations have tokens. What a template or a prompt prescribes
is fed the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from spec_cpu import defaults
from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.machine import hardware
from spec_cpu.train.script import USER, Speaker, Template
from spec_cpu.train.shards import Manifest, Shard, ShardStore

_LEAST_SEQUENCES = 4
_TOP = 16  # likeliest tokens that are kept
_BLOCK = 128  # logits are searched by the largest of each block
ANSWER = (64, 320)  # tokens
_LEAST_ANSWER = 64  # tokens that a prompt leaves room for
_USER_TEMPERATURE = 1.0
_TEMPERATURES = (0.0, defaults.TEMPERATURE)  # of answers: by turns
MEMORY_SHARE = 0.25  # of what is free, for the cache

GenerateProgress = Callable[[int, int, float], None]
"""Told (tokens made, tokens wanted, tokens a second) after each pass; may raise to end it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to generate, and of what.

    Attributes:
        tokens: wanted, rounded up to whole shards.
        seed: the same seed gives the same data on one machine.
        prompts: user turns of conversations: half of them begin with these, so that a head learns
            from what it is for and from more. Later passes over them, and prompts that are too
            long, have only the beginning of the first turn, and the target goes on from there:
            another conversation each time. None: all are made up.
        sequences: conversations in one batch, at most.
        length: tokens of a conversation.
    """

    tokens: int
    seed: int = 0
    prompts: Sequence[Sequence[str]] = field(default=())
    sequences: int = defaults.TRAIN_SEQUENCES
    length: int = defaults.TRAIN_LENGTH


def generate(
    target: Model,
    folder: Path,
    plan: Plan,
    *,
    threads: int | None = None,
    progress: GenerateProgress | None = None,
    until: Callable[[], bool] = lambda: False,
    shards: int | None = None,
) -> ShardStore:
    """Let `target` talk until `folder` has enough shards; those that it has are kept.

    Args:
        shards: exactly this many, whatever the plan and `until` say.
        until: asked before each shard: is it time to stop?

    Raises:
        UsageError: the folder holds other data.
        ContextError: not enough memory.
        SpecCpuError: the disk is full.
    """
    store = ShardStore(folder)
    length = min(plan.length, target.n_ctx_train)
    sequences = store.manifest().sequences if store.begun else _sequences(target, plan, length)
    store.begin(
        Manifest(
            target=target.path.name,
            fingerprint=target.fingerprint,
            n_embd=target.n_embd,
            sequences=sequences,
            length=length,
            top=min(_TOP, target.vocab.n),
            seed=plan.seed,
            prompts=_digest(plan.prompts),
        )
    )
    size = sequences * length
    wanted = shards or -(-plan.tokens // size)
    if len(store) >= wanted:
        return store
    with Context(
        target,
        n_ctx=size,
        n_seq=sequences,
        n_batch=sequences,
        max_outputs=sequences,
        threads=threads,
        hidden=True,
        unified=False,
    ) as context:
        talk = _Talk(context, sequences, length, Template.of(target), plan)
        first, start = len(store), perf_counter()
        for number in range(first, wanted):
            if store.has(number):  # after one that is gone
                continue
            if shards is None and until():
                break

            def report(tokens: int, before: int = number * size) -> None:
                if progress is not None:
                    made = before - first * size + tokens
                    rate = made / (perf_counter() - start)
                    progress(before + tokens, wanted * size, rate)

            store.write(number, talk.shard(number, report))
    return store


def _sequences(target: Model, plan: Plan, length: int) -> int:
    """As many conversations as memory allows."""
    available = hardware.available_memory()
    n = plan.sequences
    while available is not None and target.kv_bytes(n * length) > MEMORY_SHARE * available:
        n //= 2
        if n < min(_LEAST_SEQUENCES, plan.sequences):
            needed = target.kv_bytes(_LEAST_SEQUENCES * length) / MEMORY_SHARE
            raise ContextError(
                f"generating with {target.path.name} needs about {needed / 1e9:.1f} GB of memory, "
                f"but {available / 1e9:.1f} GB are free: close other programs"
            )
    return n


def _digest(prompts: Sequence[Sequence[str]]) -> str:
    if not prompts:
        return ""
    return hashlib.blake2b(repr([list(turns) for turns in prompts]).encode()).hexdigest()[:16]


class _Talk:
    """Conversations that advance together."""

    def __init__(
        self, context: Context, sequences: int, length: int, template: Template, plan: Plan
    ) -> None:
        self._context = context
        self._n = sequences
        self._length = length
        self._template = template
        self._vocab = context.model.vocab
        self._seed = plan.seed
        self._prompts = [
            [self._vocab.tokenize(turn, add_special=False, parse_special=False) for turn in turns]
            for turns in plan.prompts
        ]
        around = len(template.opening) + len(template.to_assistant)
        self._room = length - around - min(_LEAST_ANSWER, length // 8)

    def shard(self, number: int, report: Callable[[int], None]) -> Shard:
        """Shard `number`: it depends on nothing but that and the plan."""
        n, length = self._n, self._length
        top = min(_TOP, self._vocab.n)
        shard = Shard(
            tokens=np.zeros((n, length), np.int32),
            features=np.zeros((n, length, self._context.model.n_embd), np.float16),
            top_tokens=np.zeros((n, length, top), np.int32),
            top_logprobs=np.zeros((n, length, top), np.float16),
            roles=np.zeros((n, length), np.uint8),
        )
        rng = np.random.default_rng([self._seed, number])
        speakers = [self._speaker(number, i) for i in range(n)]
        answers = np.array([_TEMPERATURES[i % len(_TEMPERATURES)] for i in range(n)])
        for seq_id in range(n):
            self._context.truncate(0, seq_id=seq_id)
        sampled = np.zeros(n, np.int32)
        seq_ids = [(i,) for i in range(n)]
        for step in range(length):
            said = [
                speaker.next(int(token)) for speaker, token in zip(speakers, sampled, strict=True)
            ]
            tokens = [token for token, _ in said]
            logits = self._context.decode(tokens, [step] * n, seq_ids)
            likeliest, logprobs = top_logprobs(logits, min(defaults.TOP_K, self._vocab.n))
            shard.tokens[:, step] = tokens
            shard.roles[:, step] = [role for _, role in said]
            shard.features[:, step] = self._context.hidden_rows(n)
            shard.top_tokens[:, step] = likeliest[:, :top]
            shard.top_logprobs[:, step] = logprobs[:, :top]
            users = np.array([speaker.role == USER for speaker in speakers])
            temperatures = np.where(users, _USER_TEMPERATURE, answers)
            sampled = likeliest[np.arange(n), draw(logprobs, temperatures, rng)]
            report((step + 1) * n)
        return shard

    def _speaker(self, number: int, i: int) -> Speaker:
        """Of conversation `i` of a shard."""
        rng = np.random.default_rng([self._seed, number, i])
        return Speaker(self._template, rng, ANSWER, *self._opening(number, i, rng))

    def _opening(
        self, number: int, i: int, rng: np.random.Generator
    ) -> tuple[list[list[int]], bool]:
        """The user turns that conversation `i` of a shard begins with; is the last only begun?

        Two that follow each other begin alike, so that both temperatures get the same prompts, and
        every pass over the prompts has another order.
        """
        pair = i // len(_TEMPERATURES)
        if not self._prompts or pair % 2:
            return [], False
        theirs = -(-self._n // (2 * len(_TEMPERATURES)))  # pairs of a shard
        again, place = divmod(number * theirs + pair // 2, len(self._prompts))
        order = np.random.default_rng([self._seed, again]).permutation(len(self._prompts))
        turns = self._prompts[order[place]]
        if not again and len(turns[0]) <= self._room:
            return list(turns), False
        most = min(len(turns[0]), self._room // 2)
        return [turns[0][: max(1, int(rng.integers(most + 1)))]], True


def top_logprobs(logits: Rows, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k likeliest tokens of each row, likeliest first, and the logarithms of their chances.

    Args:
        logits: (n, n_vocab) float32.

    Returns:
        Two arrays (n, k). Found in one pass over the logits: the k largest lie in the k blocks
        whose largest are the largest.
    """
    n, vocab = logits.shape
    whole = vocab - vocab % _BLOCK
    blocks = logits[:, :whole].reshape(n, -1, _BLOCK).max(-1)
    rows = np.arange(n)[:, None]
    if blocks.shape[1] > k:
        best = np.argpartition(-blocks, k, axis=1)[:, :k]
        ids = (best[:, :, None] * _BLOCK + np.arange(_BLOCK)).reshape(n, -1)
        ids = np.concatenate([ids, np.broadcast_to(np.arange(whole, vocab), (n, vocab - whole))], 1)
    else:
        ids = np.broadcast_to(np.arange(vocab), (n, vocab))
    values = logits[rows, ids]
    if values.shape[1] > k:
        best = np.argpartition(-values, k, axis=1)[:, :k]
        ids, values = np.take_along_axis(ids, best, 1), np.take_along_axis(values, best, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    ids, values = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
    largest = values[:, 0]
    total = [np.log(np.exp(row - top).sum()) for row, top in zip(logits, largest, strict=True)]
    return ids.astype(np.int32), values - largest[:, None] - np.array(total)[:, None]


def draw(
    logprobs: NDArray[np.float32], temperatures: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.intp]:
    """A column of each row, drawn as llama.cpp's default sampling would; temperature 0: the first.

    Args:
        logprobs: (n, k), falling along each row.
        temperatures: (n,).
    """
    heat = np.maximum(temperatures, 1e-3)[:, None]
    weights = np.exp((logprobs - logprobs[:, :1]) / heat)
    chances = np.exp(logprobs - logprobs[:, :1])
    before = np.cumsum(chances, axis=1) - chances
    kept = (before < defaults.TOP_P * chances.sum(1, keepdims=True)) & (chances >= defaults.MIN_P)
    cumulated = np.cumsum(np.where(kept, weights, 0.0), axis=1)
    drawn = (rng.random((len(logprobs), 1)) * cumulated[:, -1:] < cumulated).argmax(1)
    return np.where(temperatures > 0.0, drawn, 0)
