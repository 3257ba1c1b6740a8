"""What a memory brings: tokens a cycle of a session that begins with one, and of one without.

    python bench/memory.py TARGET.gguf [-k K] [-n N] [--pieces N]

Greedy answers with `ngram` and K tokens a cycle: counts, so that a busy machine does not matter.
The code: pieces of this library's own source. The prompts: the first turn of each in
`spec_cpu/bench/prompts.jsonl`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import spec_cpu
from spec_cpu import defaults
from spec_cpu.bench.arms import SHIPPED, read_prompts
from spec_cpu.sampling.pipeline import SamplingParams

PIECE = slice(60, 110)  # lines of a file
EXPLAIN = "Explain what this Python code does, step by step, and quote the lines that you explain."
REWRITE = "Rewrite this Python code with clearer names, and give the whole of it."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path, metavar="TARGET.gguf")
    parser.add_argument("-k", type=int, default=8, help="tokens to draft a cycle")
    parser.add_argument("-n", type=int, default=defaults.BENCH_TOKENS, help="tokens an answer")
    parser.add_argument("--pieces", type=int, default=12, help="of code")
    arguments = parser.parse_args()
    code = pieces(arguments.pieces)
    explain, rewrite = ([f"{asked}\n\n{piece}" for piece in code] for asked in (EXPLAIN, REWRITE))
    prompts = [prompt.turns[0] for prompt in read_prompts(SHIPPED)]
    half = len(code) // 2
    print(
        "| session before | this session | no memory | a new one | warm |",
        "| --- " * 5 + "|",
        sep="\n",
    )
    for before, now, first, second in (
        ("code, explain it", "the same code, rewrite it", explain, rewrite),
        ("code, rewrite it", "other code, rewrite it", rewrite[:half], rewrite[half:]),
        ("every other prompt", "the prompts between", prompts[::2], prompts[1::2]),
        ("code, rewrite it", "the prompts", rewrite, prompts),
        ("the prompts", "the same again", prompts, prompts),
    ):
        with tempfile.TemporaryDirectory() as folder:
            new, warm = Path(folder) / "new", Path(folder) / "warm"
            tokens_per_cycle(first, warm, arguments)
            rates = [tokens_per_cycle(second, memory, arguments) for memory in (None, new, warm)]
        print(f"| {before} | {now} |", *(f"{rate:.2f} |" for rate in rates), flush=True)


def pieces(n: int) -> list[str]:
    """Pieces of code, each from another file, as a prompt shows them."""
    files = sorted(Path(spec_cpu.__file__).parent.rglob("*.py"))
    long = [lines for file in files if len(lines := file.read_text().splitlines()) >= PIECE.stop]
    chosen = long[:: max(1, len(long) // n)][:n]
    return ["\n".join(["```python", *lines[PIECE], "```"]) for lines in chosen]


def tokens_per_cycle(
    prompts: Sequence[str], memory: Path | None, arguments: argparse.Namespace
) -> float:
    """Of a session that answers each of `prompts`, as a conversation of its own."""
    tokens = cycles = 0
    with spec_cpu.load(
        arguments.target,
        defaults.NGRAM,
        k=arguments.k,
        sampling=SamplingParams(temperature=0),
        memory=memory,
    ) as session:
        for prompt in prompts:
            session.reset()
            list(session.generate(prompt, max_tokens=arguments.n))
            tokens += session.stats.tokens
            cycles += session.stats.cycles
    return tokens / cycles


if __name__ == "__main__":
    main()
