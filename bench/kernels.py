"""The verify kernels against stock ones: time of a pass, by format and width.

    python bench/kernels.py MODEL.gguf [--formats Q4_0,Q4_K_M,...] [--rounds N] [--isa avx2]
        [--stock-python PYTHON] [--total-variation]

MODEL.gguf is quantized to each format (in a temporary folder, or kept in --keep DIR). Each file is
opened by two processes, one with stock kernels that never loads ours, one with ours, and passes of
both are timed in turn (A B A B) at a depth of 128 tokens. A ratio is the median over the pairs,
V(n) that of ours over n tokens in those over one. --isa chooses a lesser instruction set for ours;
--stock-python is an interpreter whose llama-cpp-python is built for the same one. --total-variation
also compares the distributions that both give for the next token along real prompts, beside what
stock differs from itself with and without flash attention.
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
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import llama_cpp
import numpy as np
from scipy.special import softmax

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
PROMPTS = Path(__file__).parent / "prompts.jsonl"
TV_PROMPTS = 20
PAUSE = 0.02  # seconds between passes, in which the threads of the other side go to sleep


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--formats", default=FORMATS_TO_TRY)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for the quantized files")
    parser.add_argument("--isa", help="instruction set of our kernels; default: the best here")
    parser.add_argument("--stock-python", default=sys.executable, metavar="PYTHON")
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
                row = timing_row(stock, ours, arguments.rounds)
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


# ---- times -------------------------------------------------------------------------------------


def pairs_of_seconds(
    stock: Side, ours: Side, n: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Of passes over n tokens, in turn; a round more warms up."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for side, taken in zip((stock, ours), times, strict=True):
            sleep(PAUSE)
            taken.append(side.ask("seconds", n))
    return times[0][1:], times[1][1:]


def timing_row(stock_side: Side, our_side: Side, rounds: int) -> list[str]:
    cells, best, median = [], {}, {}
    for n in (*WIDTHS, PROMPT):
        count = rounds if n < PROMPT else max(3, rounds // 3)
        stock, ours = pairs_of_seconds(stock_side, our_side, n, count)
        best[n], median[n] = min(ours), statistics.median(ours)
        ratio = statistics.median(b / a for a, b in zip(stock, ours, strict=True))
        cells.append(f"{ratio:.2f} ({1e3 * min(stock):.1f} → {1e3 * best[n]:.1f} ms)")
    return [
        *cells,
        *(f"{median[n] / median[1]:.2f}" for n in WIDTHS[1:]),
        f"{our_side.info['bytes'] / best[1] / 1e9:.0f}",
        f"{8 * our_side.info['parameters'] / best[8] / 1e9:.0f}",
    ]


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
    prompts = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    texts = [record["turns"][0] if "turns" in record else record["prompt"] for record in prompts]
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
