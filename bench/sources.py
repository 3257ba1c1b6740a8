"""Every way to draft for one target, on the same prompts: one table.

    python bench/sources.py TARGET.gguf NAME=DRAFT[:SHAPE] ... [-k K] [--temp T] [--limit N] [-n N]

DRAFT is what `--draft` takes, SHAPE what `--shape` takes, such as `"EAGLE-2 tree=head.gguf:tree"`.
Each source answers every prompt in turn with plain decoding of the same session (A B A B, the same
seeds, k chosen each cycle unless it is pinned); a speedup is the median of the ratios with a 95 %
interval (bootstrap).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import spec_cpu
from spec_cpu import defaults
from spec_cpu.bench.arms import PLAIN, SHIPPED, Prompt, read_prompts, run
from spec_cpu.bench.results import OVERALL, Result, summarize
from spec_cpu.sampling.pipeline import SamplingParams


@dataclass(frozen=True, slots=True)
class Arm:
    """A row of the table."""

    name: str
    draft: str
    shape: str

    @classmethod
    def parse(cls, text: str) -> Arm:
        name, _, rest = text.partition("=")
        draft, _, shape = rest.partition(":")
        if not name or not draft:
            raise SystemExit(f"{text!r} is not NAME=DRAFT[:SHAPE]")
        return cls(name, draft, shape or defaults.SHAPE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path, metavar="TARGET.gguf")
    parser.add_argument("arms", nargs="+", type=Arm.parse, metavar="NAME=DRAFT[:SHAPE]")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--limit", type=int, help="prompts of each category, at most")
    parser.add_argument("-n", type=int, default=defaults.BENCH_TOKENS, help="tokens an answer")
    parser.add_argument("-k", type=int, help="tokens to draft a cycle; in a tree, nodes")
    parser.add_argument("--kernels", default="on")
    arguments = parser.parse_args()
    prompts = list(limited(read_prompts(SHIPPED), arguments.limit))
    categories = list(dict.fromkeys(prompt.category for prompt in prompts))
    header = ["source", "tok/s", "plain", "speedup", "95 %", "tok/cycle", "c", "alpha by depth"]
    print_row([*header, *categories])
    print_row(["---"] * (len(header) + len(categories)))
    for arm in arguments.arms:
        results, c = measure(arguments.target, arm, prompts, arguments)
        print_row([*overall(arm, results[OVERALL], c), *by_category(results, categories)])


def limited(prompts: list[Prompt], limit: int | None) -> Iterator[Prompt]:
    seen: dict[str, int] = {}
    for prompt in prompts:
        seen[prompt.category] = seen.get(prompt.category, 0) + 1
        if limit is None or seen[prompt.category] <= limit:
            yield prompt


def measure(
    target: Path, arm: Arm, prompts: list[Prompt], arguments: argparse.Namespace
) -> tuple[dict[str, Result], float | None]:
    """Results by category, and c as measured before them, where passes draft."""
    with spec_cpu.load(
        target,
        arm.draft,
        shape=arm.shape,
        kernels=arguments.kernels,
        recalibrate=True,
        sampling=SamplingParams(temperature=arguments.temp),
    ) as session:
        pins = (arguments.k, PLAIN)
        rounds = run(session, prompts, pins=pins, max_tokens=arguments.n, seed=0)
        results = summarize(list(rounds), arguments.k)
        return results, session.costs.c if session.costs and session.draft_model else None


def overall(arm: Arm, result: Result, c: float | None) -> list[str]:
    depths = " ".join(f"{alpha:.2f}" for alpha in result.alpha_by_position[:5])
    return [
        arm.name,
        f"{result.tokens_per_second:.0f}",
        f"{result.plain_tokens_per_second:.0f}",
        f"{result.speedup.median:.2f}",
        result.speedup.interval,
        f"{result.tokens_per_cycle or 0:.2f}",
        "-" if c is None else f"{c:.3f}",
        depths or "-",
    ]


def by_category(results: dict[str, Result], categories: list[str]) -> list[str]:
    return [f"{results[name].speedup.median:.2f}" for name in categories]


def print_row(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
