"""Is what the screen says true, and what does drafting cost where it does not pay?

    python bench/truth.py [--target T] [--draft D] [--temp T] [--limit N] [--skip N] [-n N]
        [--rounds N] [--each]

Each question is answered plainly and with drafts in turn, N times, and plainly once more, every
time by a session that was loaded for it, as `spec-cpu run` does. An answer's speedup is its speed
over the mean of the two answers beside it, a question's is the median of its answers with drafts.
Questions and answers are short: what is explored is hardly paid back in them. Shown beside it: how
far the speedup that `run --json` gives lies from the true one, and as the floor of noise under both
the same speedup of the plain answers, which would be 1 on a machine without noise.
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
class Question:
    """What the answers to one question had: those with drafts, and one plain answer more."""

    drafting: tuple[Stats, ...]
    plain: tuple[float, ...]  # tokens a second

    @property
    def true(self) -> float:
        speeds = [stats.tokens_per_second or 0.0 for stats in self.drafting]
        return statistics.median(speedups(speeds, self.plain, self.plain[1:]))

    @property
    def shown(self) -> float:
        """The speedup that the answers with drafts say they had."""
        return statistics.median(stats.speedup or 0.0 for stats in self.drafting)

    @property
    def error(self) -> float:
        return abs(self.shown / self.true - 1.0)

    @property
    def floor(self) -> float | None:
        """`true` of plain answers, 1 but for noise; None if there was but one round."""
        inner = speedups(self.plain[1:], self.plain, self.plain[2:])
        return statistics.median(inner) if inner else None


def main() -> None:
    default = load_catalog().pair(defaults.PAIR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=default.target)
    parser.add_argument("--draft", default=f"{defaults.NGRAM},{default.draft}")
    parser.add_argument("--temp", type=float, default=defaults.TEMPERATURE)
    parser.add_argument("--limit", type=int, default=len(QUESTIONS), help="questions at most")
    parser.add_argument("--skip", type=int, default=0, help="questions to leave out first")
    parser.add_argument("-n", type=int, help="tokens an answer; default: 60 to 120")
    parser.add_argument("--rounds", type=int, default=3, help="answers with drafts to each")
    parser.add_argument("--each", action="store_true", help="a line a question")
    arguments = parser.parse_args()
    chosen = [*enumerate(QUESTIONS)][arguments.skip :][: arguments.limit]
    questions = []
    for i, text in chosen:
        tokens = arguments.n or LEAST + i * (MOST - LEAST) // (len(QUESTIONS) - 1)
        questions.append(question := measure(arguments, text, tokens, seed=i))
        if arguments.each:
            last = question.drafting[-1]
            print(
                f"{text[:40]:40} true {question.true:.3f} shown {question.shown:.3f} "
                f"plain {number(question.floor)} of {statistics.median(question.plain):.1f} tok/s, "
                f"{last.cycles} cycles, {last.drafted} drafted",
                flush=True,
            )
    report(questions)


def measure(arguments: argparse.Namespace, question: str, tokens: int, seed: int) -> Question:
    def answered(draft: str) -> Stats:
        sampling = SamplingParams(temperature=arguments.temp)
        with spec_cpu.load(arguments.target, draft, sampling=sampling) as session:
            for _ in session.generate(
                question, max_tokens=tokens, ignore_eos=True, seed=seed, repeatable=False
            ):
                pass
            return session.stats

    def plain() -> float:
        return answered("none").tokens_per_second or 0.0

    speeds, drafting = [plain()], []
    for _ in range(arguments.rounds):
        drafting.append(answered(arguments.draft))
        speeds.append(plain())
    return Question(tuple(drafting), tuple(speeds))


def speedups(
    speeds: Sequence[float], before: Sequence[float], after: Sequence[float]
) -> list[float]:
    """Of answers over the mean of the answers before and after each."""
    return [
        speed / statistics.mean(beside)
        for speed, *beside in zip(speeds, before, after, strict=False)
    ]


def report(questions: Sequence[Question]) -> None:
    errors = [question.error for question in questions]
    floors = [question.floor for question in questions if question.floor is not None]
    print(
        f"{len(questions)} questions: true speedup {spread([each.true for each in questions])}; "
        f"shown differs by {statistics.median(errors):.1%} in the median, {max(errors):.1%} at most"
    )
    if floors:
        print(f"plain answers in place of those with drafts: {spread(floors)}")


def spread(values: Sequence[float]) -> str:
    median = statistics.median(values)
    return f"{median:.3f} in the median ({min(values):.3f} to {max(values):.3f})"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
