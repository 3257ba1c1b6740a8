"""The verify kernels against stock ones: time of a pass, by format and width.

    python bench/kernels.py MODEL.gguf [--formats Q4_0,Q4_K_M,...] [--rounds N] [--isa avx2]
        [--stock-python PYTHON] [--ik LLAMA_BENCH] [--total-variation]

MODEL.gguf is quantized to each format (in a temporary folder, or kept in --keep DIR). Each file is
opened by two processes, one with stock kernels that never loads ours, one with ours, and passes of
both are timed in turn (A B A B) at a depth of 128 tokens. A ratio is the median over the pairs,
V(n) that of ours over n tokens in those over one. --isa chooses a lesser instruction set for ours;
--stock-python is an interpreter whose llama-cpp-python is built for the same one. --ik is
ik_llama.cpp's llama-bench, with repacked weights; it runs before and amid these passes, and has
no tokens before its own; ours over it are medians, its times the best.
--total-variation also compares the distributions that both give for the next token along real
prompts, beside what stock differs from itself with and without flash attention.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import llama_cpp
import numpy as np
from scipy.special import softmax

from spec_cpu.bench.arms import SHIPPED, read_prompts
from spec_cpu.kernels.isa import VARIABLE
from spec_cpu.kernels.ready import ready
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import FORMATS
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.machine import hardware

FORMATS_TO_TRY = "Q4_0,Q4_K_S,Q4_K_M,Q8_0,Q6_K,Q5_K_S,Q4_1,Q5_0,F16,BF16"
WIDTHS = (1, 2, 4, 8)
PROMPT = 256
DEPTH = 128
TV_PROMPTS = 20
HALVES = 2  # of the rounds: a disturbance hits all widths a little
PAUSE = 0.02  # seconds between passes, in which the threads of the other side go to sleep


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--formats", default=FORMATS_TO_TRY)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for the quantized files")
    parser.add_argument("--isa", help="instruction set of our kernels; default: the best here")
    parser.add_argument("--stock-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--ik", metavar="LLAMA_BENCH", help="of ik_llama.cpp")
    parser.add_argument("--total-variation", action="store_true")
    parser.add_argument("--answer", choices=("stock", "ours"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer(arguments.model, with_ours=arguments.answer == "ours")
    else:
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    print(f"{arguments.model.name}, {hardware.processor()}, {arguments.isa or 'its best set'}\n")
    header = ["format", *(f"{n} tokens" for n in WIDTHS), f"prompt of {PROMPT}"]
    header += [*(f"V({n})" for n in WIDTHS[1:]), "GB/s at 1", "GMAC/s at 8"]
    header += [f"{n} over ik" for n in (*WIDTHS, PROMPT)] * bool(arguments.ik)
    header += ["TV", "TV of stock"] * arguments.total_variation
    print_row(header)
    print_row(["---"] * len(header))
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.formats.split(","):
            file = quantized(arguments.model, name, arguments.keep or Path(folder))
            with (
                Side(file, "stock", arguments.stock_python) as stock,
                Side(file, "ours", sys.executable, arguments.isa) as ours,
            ):
                ik = IkBench(arguments.ik, file) if arguments.ik else None
                row = timing_row(stock, ours, ik, arguments.rounds)
                if arguments.total_variation:
                    row += total_variations(stock, ours)
            print_row([name, *row])


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def quantized(model: Path, name: str, folder: Path) -> Path:
    """`model` in another format. Not `pure`: as people's files are, with mixtures where usual."""
    file = folder / f"{model.stem}-{name.lower()}.gguf"
    if not file.exists():
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FORMATS[name]
        params.allow_requantize = True
        failed = llama_cpp.llama_model_quantize(bytes(model), bytes(file), params)
        assert not failed, f"cannot quantize {model} to {name}"
    return file


# ---- a process a side --------------------------------------------------------------------------


class Side:
    """A process that has a model open with one kind of kernels and answers what it is asked."""

    def __init__(self, file: Path, kernels: str, python: str, isa: str | None = None) -> None:
        environment = os.environ | ({VARIABLE: isa} if isa else {})
        self._process = subprocess.Popen(
            [python, __file__, str(file), "--answer", kernels],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Side:
        self.info: dict[str, int] = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, *question: object) -> Any:
        assert self._process.stdin
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a process that opened the model ended: see above")
        return json.loads(line)


def answer(file: Path, *, with_ours: bool) -> None:
    """Answer one question a line: how long does a pass take, what comes next in the prompts?"""
    library = ready().library if with_ours else None
    with Model(file, kernels=library) as model:
        info = {"bytes": model.info.bytes, "parameters": model.info.parameters}
        print(json.dumps(info), flush=True)
        # The other side waits, but looks busy: the number of threads is not left to that.
        threads = hardware.threads(None)
        with Context(model, n_ctx=1024, max_outputs=max(WIDTHS), threads=threads) as context:
            sequence = KVSequence(context)
            sequence.prefill(list(range(100, 100 + DEPTH)))
            for line in sys.stdin:
                what, value = json.loads(line)
                if what == "seconds":
                    print(pass_seconds(sequence, value), flush=True)
                else:
                    rows = next_token(model, flash=what == "flash")
                    np.save(value, np.concatenate(rows))
                    print(json.dumps(len(rows)), flush=True)


def pass_seconds(sequence: KVSequence, n: int) -> float:
    tokens = list(range(200, 200 + n))
    start = perf_counter()
    if n == PROMPT:
        sequence.prefill(tokens)
    else:
        sequence.score(tokens)
    taken = perf_counter() - start
    sequence.truncate(DEPTH)
    return taken


class IkBench:
    """ik_llama.cpp's llama-bench: a process a call, so that no thread of its is there otherwise."""

    def __init__(self, program: str, file: Path) -> None:
        prompts = ",".join(str(n) for n in (*WIDTHS[1:], PROMPT))
        threads = str(hardware.threads(None))
        self._command = [program, "-m", str(file), "-rtr", "1", "-mmp", "0", "-t", threads]
        self._command += ["-p", prompts, "-n", "16", "-r", "2", "-o", "json"]
        self.seconds: dict[int, list[float]] = {n: [] for n in (*WIDTHS, PROMPT)}

    def run(self) -> None:
        done = subprocess.run(self._command, stdout=subprocess.PIPE, check=True)
        for test in json.loads(done.stdout):
            generated = test["n_gen"]  # one by one, or else a prompt is read in one pass
            taken = self.seconds[1 if generated else test["n_prompt"]]
            taken += [ns / max(1, generated) / 1e9 for ns in test["samples_ns"]]


# ---- times -------------------------------------------------------------------------------------


Times = dict[int, list[float]]  # seconds of passes, by their tokens


def add_passes(sides: Sequence[tuple[Side, Times]], n: int, rounds: int) -> None:
    """Time passes over n tokens, the sides in turn; a round before warms up what takes no time."""
    warm_up = int(n < PROMPT)
    for i in range(warm_up + rounds):
        for side, times in sides:
            sleep(PAUSE)
            taken = side.ask("seconds", n)
            if i >= warm_up:
                times[n].append(taken)


def timing_row(stock_side: Side, our_side: Side, ik: IkBench | None, rounds: int) -> list[str]:
    widths = (*WIDTHS, PROMPT)
    stock: Times = {n: [] for n in widths}
    ours: Times = {n: [] for n in widths}
    for _ in range(HALVES):
        if ik:
            ik.run()
        for n in widths:
            count = rounds if n < PROMPT else max(3, rounds // 3)
            add_passes([(stock_side, stock), (our_side, ours)], n, ceil(count / HALVES))
    best = {n: min(ours[n]) for n in widths}
    median = {n: statistics.median(ours[n]) for n in widths}
    cells = []
    for n in widths:
        ratio = statistics.median(b / a for a, b in zip(stock[n], ours[n], strict=True))
        cells.append(f"{ratio:.2f} ({1e3 * min(stock[n]):.1f} → {1e3 * best[n]:.1f} ms)")
    cells += [
        *(f"{median[n] / median[1]:.2f}" for n in WIDTHS[1:]),
        f"{our_side.info['bytes'] / best[1] / 1e9:.0f}",
        f"{8 * our_side.info['parameters'] / best[8] / 1e9:.0f}",
    ]
    if ik:
        for n, of_ik in ik.seconds.items():
            ratio = median[n] / statistics.median(of_ik)
            cells.append(f"{ratio:.2f} ({1e3 * min(of_ik):.1f} ms)")
    return cells


# ---- distributions -----------------------------------------------------------------------------


def total_variations(stock: Side, ours: Side) -> list[str]:
    """Mean total variation of the next token: ours from stock; stock's two attentions."""
    with tempfile.TemporaryDirectory() as folder:
        plain = distributions(stock, "flash", Path(folder) / "stock.npy")
        others = (
            distributions(ours, "flash", Path(folder) / "ours.npy"),
            distributions(stock, "no flash", Path(folder) / "other.npy"),
        )
    return [f"{np.abs(plain - other).sum(axis=1).mean() / 2:.4f}" for other in others]


def distributions(side: Side, attention: str, file: Path) -> np.ndarray:
    side.ask(attention, str(file))
    rows: np.ndarray = np.load(file)
    return rows


def next_token(model: Model, *, flash: bool) -> list[np.ndarray]:
    """The distributions after the last tokens of some prompts."""
    texts = [prompt.turns[0] for prompt in read_prompts(SHIPPED)]
    rows = []
    threads = hardware.threads(None)
    with attention(flash), Context(model, n_ctx=1024, max_outputs=8, threads=threads) as context:
        sequence = KVSequence(context)
        for text in texts[:: len(texts) // TV_PROMPTS][:TV_PROMPTS]:
            tokens = model.vocab.tokenize(text)
            sequence.truncate(0)
            sequence.prefill(tokens[:-8])
            rows.append(softmax(sequence.score(tokens[-8:]).astype(np.float64), axis=1))
    return rows


@contextmanager
def attention(flash: bool) -> Iterator[None]:
    """Contexts made inside use flash attention or do not."""
    defaults = llama_cpp.llama_context_default_params

    def changed() -> llama_cpp.llama_context_params:
        params = defaults()
        params.flash_attn_type = int(flash)
        return params

    llama_cpp.llama_context_default_params = changed
    try:
        yield
    finally:
        llama_cpp.llama_context_default_params = defaults


if __name__ == "__main__":
    main()
