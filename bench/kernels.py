"""The verify kernels against stock ones: time of a pass, by format and width.

    python bench/kernels.py MODEL.gguf [--formats Q4_0,Q4_K_M,...] [--rounds N] [--total-variation]

MODEL.gguf is quantized to each format (in a temporary folder, or kept in --keep DIR). Each file is
loaded twice, with stock kernels and with ours, and passes of both are timed in turn (A B A B) at a
depth of 128 tokens. A ratio is the median over the pairs. --total-variation also compares the
distributions that both give for the next token along real prompts, beside what stock differs from
itself with and without flash attention.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import llama_cpp
import numpy as np
from scipy.special import softmax

from spec_cpu import machine
from spec_cpu.kernels.build import build
from spec_cpu.llama.context import Context
from spec_cpu.llama.kernels import load_kernels
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import FORMATS
from spec_cpu.llama.sequence import KVSequence

FORMATS_TO_TRY = "Q4_0,Q4_K_S,Q4_K_M,Q8_0,Q6_K,Q5_K_S,Q4_1,Q5_0,F16,BF16"
WIDTHS = (1, 2, 4, 8)
PROMPT = 256
DEPTH = 128
PROMPTS = Path(__file__).parent / "prompts.jsonl"
TV_PROMPTS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--formats", default=FORMATS_TO_TRY)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="for the quantized files")
    parser.add_argument("--total-variation", action="store_true")
    arguments = parser.parse_args()
    library = build().library
    instructions = load_kernels(library)
    print(f"{arguments.model.name}, {machine.processor()}, {instructions}\n")
    header = ["format", *(f"{n} tokens" for n in WIDTHS), f"prompt of {PROMPT}", "GB/s at 1"]
    header += ["GMAC/s at 8"] + ["TV", "TV of stock"] * arguments.total_variation
    print_row(header)
    print_row(["---"] * len(header))
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.formats.split(","):
            file = quantized(arguments.model, name, arguments.keep or Path(folder))
            with opened(file, None) as stock, opened(file, library) as ours:
                row = timing_row(Pair(stock, ours), arguments.rounds)
            if arguments.total_variation:
                row += total_variations(file, library)
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


@contextmanager
def opened(file: Path, library: Path | None) -> Iterator[KVSequence]:
    with (
        Model(file, kernels=library) as model,
        Context(model, n_ctx=1024, max_outputs=max(WIDTHS)) as context,
    ):
        sequence = KVSequence(context)
        sequence.prefill(list(range(100, 100 + DEPTH)))
        yield sequence


@dataclass(frozen=True, slots=True)
class Pair:
    stock: KVSequence
    ours: KVSequence

    def seconds(self, n: int, rounds: int) -> tuple[list[float], list[float]]:
        """Of passes over n tokens, in turn; two rounds warm up."""
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds + 2):
            for sequence, taken in zip((self.stock, self.ours), times, strict=True):
                taken.append(pass_seconds(sequence, n))
        return times[0][2:], times[1][2:]


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


def timing_row(pair: Pair, rounds: int) -> list[str]:
    info = pair.ours.context.model.info
    cells, best = [], {}
    for n in (*WIDTHS, PROMPT):
        stock, ours = pair.seconds(n, rounds if n < PROMPT else max(3, rounds // 3))
        best[n] = min(ours)
        ratio = statistics.median(b / a for a, b in zip(stock, ours, strict=True))
        cells.append(f"{ratio:.2f} ({1e3 * min(stock):.1f} → {1e3 * min(ours):.1f} ms)")
    return [
        *cells,
        f"{info.bytes / best[1] / 1e9:.0f}",
        f"{8 * info.parameters / best[8] / 1e9:.0f}",
    ]


def total_variations(file: Path, library: Path) -> list[str]:
    """Mean total variation of the next token: ours from stock; stock's two attentions."""
    prompts = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    texts = [record["turns"][0] if "turns" in record else record["prompt"] for record in prompts]
    step = len(texts) // TV_PROMPTS
    with ExitStack() as stack:
        models = [stack.enter_context(Model(file, kernels=each)) for each in (None, library)]
        chosen = texts[::step][:TV_PROMPTS]
        plain = next_token(models[0], chosen)
        ours = next_token(models[1], chosen)
        other = next_token(models[0], chosen, flash=False)
    return [f"{distance(plain, ours):.4f}", f"{distance(plain, other):.4f}"]


def next_token(model: Model, texts: Sequence[str], *, flash: bool = True) -> list[np.ndarray]:
    """The distributions after the last tokens of each text."""
    rows = []
    with attention(flash), Context(model, n_ctx=1024, max_outputs=8) as context:
        sequence = KVSequence(context)
        for text in texts:
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


def distance(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    pairs = zip(one, other, strict=True)
    return float(np.mean([np.abs(a - b).sum(axis=1).mean() / 2 for a, b in pairs]))


if __name__ == "__main__":
    main()
