"""Time the passes of one model in a process of its own; `bench/shapes.py` starts it.

    python bench/shape_passes.py MODEL.gguf [--draft DRAFT.gguf] [--ours] [--widths 1,2,4]
        [--prompts 256] [--sweeps N]

Prints a JSON object with seconds: of loading, of passes by width (logits of all rows), of prompts
by length (no logits), of a draft's steps between the target's passes; and bytes of memory, without
the draft: after the prompts, and at the most. Everything begins at an empty context. Without --ours
no library of ours is ever loaded.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import numpy as np

from spec_cpu.kernels.build import build
from spec_cpu.llama.context import Context
from spec_cpu.llama.kernels import load_kernels
from spec_cpu.llama.model import STOCK, Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.machine import hardware

DRAFT_STEPS = 2  # between two passes of the target
IN_A_ROW = 2  # passes of a width: the first builds the graph
PROMPT_SECONDS = 1.0  # a short prompt is read again until this much is timed
ROOM = 64  # tokens of context beyond the longest prompt


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--draft", type=Path, metavar="DRAFT.gguf")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--widths", type=numbers, default=[])
    parser.add_argument("--prompts", type=numbers, default=[])
    parser.add_argument("--sweeps", type=int, default=2, help="over all widths")
    given = parser.parse_args()
    library = build().library if given.ours else None
    kernels = load_kernels(library) if library else STOCK
    n_ctx = max([0, *given.prompts]) + ROOM
    with ExitStack() as stack:
        start = perf_counter()
        target = opened(given.model, library, n_ctx, stack)
        loaded = perf_counter() - start
        prompts = {n: prompt_seconds(target, n) for n in given.prompts}
        memory, peak = resident_bytes(), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        draft = opened(given.draft, library, ROOM, stack) if given.draft else None
        steps: list[float] = []
        passes: dict[int, list[float]] = {n: [] for n in given.widths}
        for _ in range(given.sweeps):
            for n in given.widths:
                passes[n] += pass_seconds(target, n, draft, steps)
    record = {
        "kernels": kernels,
        "load": loaded,
        "memory": memory,
        "peak": peak,
        "prompts": prompts,
        "passes": passes,
        "draft_steps": steps,
    }
    print(json.dumps(record))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def opened(path: Path, library: Path | None, n_ctx: int, stack: ExitStack) -> KVSequence:
    model = stack.enter_context(Model(path, kernels=library))
    context = Context(model, n_ctx=n_ctx, threads=hardware.threads(None))
    return KVSequence(stack.enter_context(context))


def prompt_seconds(sequence: KVSequence, n: int) -> list[float]:
    tokens = random_tokens(sequence, n)
    times: list[float] = []
    while sum(times) < PROMPT_SECONDS:
        start = perf_counter()
        sequence.prefill(tokens)
        times.append(perf_counter() - start)
        sequence.truncate(0)
    return times


def pass_seconds(
    target: KVSequence, n: int, draft: KVSequence | None, steps: list[float]
) -> list[float]:
    """Of a few passes over n tokens.

    A pass over one token follows one of its kind, as in plain decoding; a wider one follows steps
    of the draft, whose times are added to `steps`.
    """
    tokens = random_tokens(target, n)
    times: list[float] = []
    for _ in range(IN_A_ROW):
        if draft is not None and n > 1:
            steps += [scored(draft, random_tokens(draft, 1)) for _ in range(DRAFT_STEPS)]
        times.append(scored(target, tokens))
    return times


def scored(sequence: KVSequence, tokens: Sequence[int]) -> float:
    """Seconds of a pass over `tokens`, which are forgotten then."""
    start = perf_counter()
    rows = sequence.score(tokens)
    seconds = perf_counter() - start
    assert np.isfinite(rows[-1]).all(), "logits that are no numbers"
    sequence.truncate(0)
    return seconds


def random_tokens(sequence: KVSequence, n: int) -> list[int]:
    rng = np.random.default_rng(n)
    return [int(token) for token in rng.integers(sequence.context.model.vocab.n, size=n)]


if __name__ == "__main__":
    main()
