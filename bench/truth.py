"""Is what the screen says true, and what does drafting cost where it does not pay?

    python bench/truth.py [--target T] [--draft D] [--temp T] [--limit N] [--skip N] [-n N] [--each]

Each question is answered plainly, with drafts, and plainly again, every time by a session that was
loaded for it, as `spec-cpu run` does; the true speedup is the middle one's speed over the mean of
the other two. Questions and answers are short: what is explored is hardly paid back in them. Shown
beside it: how far the speedup that `run --json` gives lies from the true one, and as the floor of
noise under both how far the two plain answers lie from each other.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import spec_cpu
from spec_cpu import defaults
from spec_cpu.answer.stats import Stats
from spec_cpu.models.catalog import load_catalog
from spec_cpu.sampling.pipeline import SamplingParams

QUESTIONS = (
    "What is a rainbow?",
    "Why is the sky blue?",
    "How do bees make honey?",
    "What does a heart do?",
    "Who wrote Hamlet, and what is it about?",
    "How does a bicycle stay upright?",
    "What is the difference between a frog and a toad?",
    "Give me three tips for sleeping well.",
    "What is photosynthesis?",
    "Write a short poem about the sea.",
    "How far away is the moon?",
    "What should I pack for a day in the mountains?",
    "Explain what a prime number is.",
    "Why do leaves change their colour in autumn?",
    "What is the capital of Australia, and why not Sydney?",
    "How can I learn to play the guitar?",
    "What causes an earthquake?",
    "Tell me about penguins.",
    "How is bread made?",
    "What is inflation in an economy?",
)
LEAST, MOST = 60, 120  # tokens an answer


@dataclass(frozen=True, slots=True)
class Pair:
    """Tokens a second of an answer with drafts and of the plain ones about it."""

    drafting: Stats
    plain: tuple[float, float]

    @property
    def true(self) -> float:
        return (self.drafting.tokens_per_second or 0.0) / statistics.mean(self.plain)

    @property
    def shown(self) -> float:
        """The speedup that the answer with drafts says it had."""
        return self.drafting.speedup or 0.0

    @property
    def error(self) -> float:
        return abs(self.shown / self.true - 1.0)

    @property
    def noise(self) -> float:
        return abs(self.plain[0] / self.plain[1] - 1.0)


def main() -> None:
    default = load_catalog().pair(defaults.PAIR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=default.target)
    parser.add_argument("--draft", default=f"{defaults.NGRAM},{default.draft}")
    parser.add_argument("--temp", type=float, default=defaults.TEMPERATURE)
    parser.add_argument("--limit", type=int, default=len(QUESTIONS), help="questions at most")
    parser.add_argument("--skip", type=int, default=0, help="questions to leave out first")
    parser.add_argument("-n", type=int, help="tokens an answer; default: 60 to 120")
    parser.add_argument("--each", action="store_true", help="a line a question")
    arguments = parser.parse_args()
    chosen = [*enumerate(QUESTIONS)][arguments.skip :][: arguments.limit]
    pairs = []
    for i, question in chosen:
        tokens = arguments.n or LEAST + i * (MOST - LEAST) // (len(QUESTIONS) - 1)
        pairs.append(pair := measure(arguments, question, tokens, seed=i))
        if arguments.each:
            print(
                f"{question[:40]:40} true {pair.true:.3f} shown {pair.shown:.3f} "
                f"plain {pair.plain[0]:.1f} {pair.plain[1]:.1f} tok/s, "
                f"{pair.drafting.cycles} cycles, {pair.drafting.drafted} drafted",
                flush=True,
            )
    report(pairs)


def measure(arguments: argparse.Namespace, question: str, tokens: int, seed: int) -> Pair:
    def answered(draft: str | None) -> Stats:
        sampling = SamplingParams(temperature=arguments.temp)
        with spec_cpu.load(arguments.target, draft, sampling=sampling) as session:
            for _ in session.generate(question, max_tokens=tokens, ignore_eos=True, seed=seed):
                pass
            return session.stats

    before, drafting, after = (answered(one) for one in (None, arguments.draft, None))
    return Pair(drafting, (before.tokens_per_second or 0.0, after.tokens_per_second or 0.0))


def report(pairs: Sequence[Pair]) -> None:
    true = sorted(pair.true for pair in pairs)
    print(
        f"{len(pairs)} pairs: true speedup {statistics.median(true):.3f} in the median, "
        f"{true[0]:.3f} to {true[-1]:.3f}; shown differs by "
        f"{statistics.median(pair.error for pair in pairs):.1%} in the median, "
        f"{max(pair.error for pair in pairs):.1%} at most; plain answers among each other by "
        f"{statistics.median(pair.noise for pair in pairs):.1%}"
    )


if __name__ == "__main__":
    main()
