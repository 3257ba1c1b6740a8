"""What Python and NumPy add to decoding: a cycle, a verified row, a plain step.

    python bench/overhead.py [--target T.gguf] [--draft D.gguf]

Drawing a token is timed in place, in plain steps at the default sampling; for a larger vocabulary
the row is copied to one of that size first, which leaves the caches as they would be.
A cycle's overhead is measured twice: as its time less the time inside `llama_decode` (in place:
every pass has just swept the processor's caches, so that the same few instructions wait for
memory), and with `llama_decode` returning at once (the work itself). The plain loop is compared
with a bare `llama_decode` loop on the same model, in turn (A B A B); its ratio is the median of the
pairs'.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from unittest.mock import patch

import llama_cpp
import numpy as np

import spec_cpu
from spec_cpu import defaults
from spec_cpu.cycle.verify import verify_block
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.models.catalog import load_catalog
from spec_cpu.models.fetch import resolve
from spec_cpu.sampling.logits import Logits
from spec_cpu.sampling.pipeline import Distribution, Pipeline, SamplingParams
from spec_cpu.session import Session

PROMPT = "Explain how a sailing boat can move against the wind."
TOKENS = 128
ROUNDS = 15
N_CTX = 1024
BIG_VOCABULARY = 151_936
HUGE_VOCABULARY = 262_144
GREEDY = SamplingParams(temperature=0)
MS = 1e3


def main() -> None:
    pair = load_catalog().pair(defaults.PAIR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=pair.target)
    parser.add_argument("--draft", default=pair.draft)
    arguments = parser.parse_args()
    rows = real_logits(arguments.target)
    n = rows.shape[1]
    results = [
        (f"a token drawn in a plain step, {n:,} tokens, in place", 0.10, drawn_ms(arguments)),
        (
            f"the same, {HUGE_VOCABULARY:,} tokens",
            0.25,
            drawn_ms(arguments, HUGE_VOCABULARY),
        ),
        (f"a cycle, greedy, k = 4, {n:,} tokens, in place", 0.30, cycle_ms(arguments)),
        ("the same, passes left out", 0.30, cycle_work_ms(arguments)),
        (f"a verified row, default pipeline, {n:,} tokens", 0.25, row_ms(rows)),
        (
            f"a verified row, default pipeline, {BIG_VOCABULARY:,} tokens",
            0.60,
            row_ms(widened(rows, BIG_VOCABULARY)),
        ),
    ]
    print("| what Python and NumPy add | at most | measured |\n|---|---|---|")
    for what, limit, measured in results:
        print(f"| {what} | {limit:.2f} ms | {measured:.3f} ms |")
    ratio = plain_ratio(arguments.target)
    print(f"| our plain loop's time over a bare llama_decode loop's | 1.03 | {ratio:.3f} |")


def drawn_ms(arguments: argparse.Namespace, n_vocab: int | None = None) -> float:
    """Milliseconds from the logits of a plain step to its token, median; of `n_vocab` logits."""
    with spec_cpu.load(arguments.target, "none", seed=1) as session:
        drawn = Pipeline.distribution
        times: list[float] = []
        wide = np.zeros(n_vocab or 0, np.float32)

        def widened_first(self: Pipeline, logits: Logits, history: list[int]) -> Distribution:
            start = perf_counter()
            for begin in range(0, len(wide), len(logits)):
                part = wide[begin : begin + len(logits)]
                np.subtract(logits[: len(part)], 4 * (begin > 0), out=part)
            copied = perf_counter() - start if n_vocab else 0.0
            times.append(-copied)
            return drawn(self, wide if n_vocab else logits, history)

        with patch.object(Pipeline, "distribution", widened_first):
            # Forbidding the end would be a logit bias, which is not what a run has by default.
            steps = session.generate(PROMPT, max_tokens=TOKENS)
            for step, i in zip(steps, itertools.count(), strict=False):
                times[i] += step.cycle.seconds.sample
    return statistics.median(times) * MS


def cycle_ms(arguments: argparse.Namespace) -> float:
    """Milliseconds of a cycle that are not inside `llama_decode`, median."""
    overheads: list[float] = []
    with (
        spec_cpu.load(arguments.target, arguments.draft, k=4, sampling=GREEDY) as session,
        timed_decode() as inside,
    ):
        for step in session.generate(PROMPT, max_tokens=TOKENS):
            overheads.append(step.cycle.seconds.total - sum(inside))
            inside.clear()
    # The first cycle's list held the passes of the prompt, too.
    return statistics.median(overheads[1:]) * MS


def cycle_work_ms(arguments: argparse.Namespace) -> float:
    """Milliseconds of a cycle whose passes take no time (the logits stay as they were), median."""
    with spec_cpu.load(arguments.target, arguments.draft, k=4, sampling=GREEDY) as session:
        steps = session.generate(PROMPT, max_tokens=TOKENS, ignore_eos=True)
        next(steps)
        decode = llama_cpp.llama_decode
        llama_cpp.llama_decode = lambda _context, _batch: 0
        try:
            return statistics.median(step.cycle.seconds.total for step in steps) * MS
        finally:
            llama_cpp.llama_decode = decode


@contextmanager
def timed_decode() -> Iterator[list[float]]:
    """The seconds of every `llama_decode` while entered."""
    times: list[float] = []
    decode = llama_cpp.llama_decode

    def timed(context: int, batch: llama_cpp.llama_batch) -> int:
        start = perf_counter()
        status = int(decode(context, batch))
        times.append(perf_counter() - start)
        return status

    llama_cpp.llama_decode = timed
    try:
        yield times
    finally:
        llama_cpp.llama_decode = decode


def real_logits(target: str) -> Logits:
    """A row of logits a token of an answer at the default temperature."""
    pipeline, rng, rows = Pipeline(SamplingParams()), np.random.default_rng(0), []
    with Model(resolve(target)) as model, Context(model, n_ctx=N_CTX) as context:
        sequence = KVSequence(context)
        *prompt, token = model.vocab.tokenize(PROMPT)
        sequence.prefill(prompt)
        for _ in range(TOKENS):
            rows.append(sequence.score([token])[0].copy())
            token = pipeline.distribution(rows[-1], []).sample(rng)
    return np.stack(rows)


def widened(rows: Logits, n_vocab: int) -> Logits:
    """The same rows over a larger vocabulary: the additional tokens are copies, less likely."""
    copies = -(-n_vocab // rows.shape[1])
    return np.concatenate([rows - 4 * i for i in range(copies)], axis=1)[:, :n_vocab]


def row_ms(rows: Logits) -> float:
    """Milliseconds to process, verify and compare a row with the default pipeline, median.

    Each pair of neighbouring rows is a block of one drafted token: two rows of p.
    """
    pipeline, rng = Pipeline(SamplingParams()), np.random.default_rng(0)
    times = []
    for i in range(len(rows) - 1):
        q = pipeline.distribution(rows[i], [])
        token = q.sample(rng)
        start = perf_counter()
        p = [pipeline.distribution(row, []) for row in rows[i : i + 2]]
        verify_block([token], p, [q], rng)
        p[0].overlap(q)
        times.append((perf_counter() - start) / len(p))
    return statistics.median(times) * MS


def plain_ratio(target: str) -> float:
    """Our plain loop's time over a bare loop's on the same model, greedy."""
    with spec_cpu.load(target, "none", sampling=GREEDY, ctx=N_CTX) as session:
        prompt = session.target.vocab.tokenize(PROMPT)
        with Context(session.target, n_ctx=N_CTX) as context:
            ratios = [ours(session) / bare(context, prompt) for _ in range(ROUNDS)]
    return statistics.median(ratios)


def ours(session: Session) -> float:
    """Seconds a token through `Session.generate`, text included."""
    steps = session.generate(PROMPT, raw=True, max_tokens=TOKENS, ignore_eos=True)
    next(steps)
    start = perf_counter()
    n = sum(len(step.tokens) for step in steps)
    return (perf_counter() - start) / n


def bare(context: Context, prompt: list[int]) -> float:
    """Seconds a token through `llama_decode` and an argmax, and nothing else."""
    handle, n_vocab = context.handle, context.model.vocab.n
    token = (ctypes.c_int32 * len(prompt))(*prompt)
    context.truncate(0)
    llama_cpp.llama_decode(handle, llama_cpp.llama_batch_get_one(token, len(prompt)))
    token = (ctypes.c_int32 * 1)()
    start = perf_counter()
    for _ in range(TOKENS):
        logits = llama_cpp.llama_get_logits_ith(handle, -1)
        token[0] = int(np.ctypeslib.as_array(logits, (n_vocab,)).argmax())
        llama_cpp.llama_decode(handle, llama_cpp.llama_batch_get_one(token, 1))
    return (perf_counter() - start) / TOKENS


if __name__ == "__main__":
    main()
