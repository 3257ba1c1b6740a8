"""What the policy makes of real drafts, by a clock that counts passes: no noise, any machine.

    python bench/policy.py TARGET.gguf DRAFT [--costs KIND] [--temp T] [--limit N] [-n N]

The target and its drafts are run, but a cycle takes what given costs say of its passes: those of a
135 M target (`small`), of one of 1.1 B weights (`large`), and of that with a model of a fifth of
its step for a draft (`model`). So a small target stands for a large one that is the same function
(`bench/widen.py`), and two versions of the policy can be told apart by what they choose alone. What
Python takes is not counted; it is shown beside. Every answer begins with a policy that knows
nothing.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import spec_cpu
from spec_cpu import defaults
from spec_cpu.answer import participants
from spec_cpu.bench.arms import SHIPPED, read_prompts
from spec_cpu.costs.costs import Costs
from spec_cpu.draft import load
from spec_cpu.llama.context import Context
from spec_cpu.sampling.pipeline import SamplingParams

WIDTHS = [1, 2, 3, 4, 5, 6, 8, 12, 16, 25]


def costs(passes: list[float], **more: float) -> Costs:
    """In plain steps, from passes over `WIDTHS`."""
    every = np.interp(np.arange(1, defaults.MAX_TREE_NODES + 2), WIDTHS, passes)
    return Costs(every.tolist(), draft_window=64, **more)


_LARGE = costs(
    [1, 1.04, 1.13, 1.2, 1.28, 1.33, 1.43, 1.72, 1.81, 2.95],
    draft_step=0.02,
    draft_catch_up=0.02,
    draft_read=0.002,
    rebuild=0.03,
    row=0.005,
)
COSTS = {
    "small": costs(
        [1, 1.15, 1.3, 1.42, 1.55, 1.62, 1.75, 2.05, 2.3, 3.0],
        draft_step=0.1,
        draft_catch_up=0.1,
        draft_read=0.006,
        rebuild=0.09,
        row=0.02,
        recovery=0.17,
    ),
    "large": _LARGE,
    "model": replace(_LARGE, draft_step=0.2, draft_read=0.02),
}


class Clock:
    """Counts the draft's passes and the tokens in each, since the last cycle."""

    def __init__(self, target: Context) -> None:
        self.passes: list[int] = []
        for name in ("decode", "decode_embeddings"):
            setattr(Context, name, self._counting(target, getattr(Context, name)))

    def _counting(self, target: Context, run: Any) -> Any:
        def counted(context: Context, tokens: Any, *rest: Any, **named: Any) -> Any:
            if context is not target:
                self.passes.append(len(tokens))
            return run(context, tokens, *rest, **named)

        return counted

    def seconds(self, given: Costs) -> float:
        """Of those passes."""
        steps = [given.draft_step + given.reading(tokens - 1) for tokens in self.passes]
        return sum(steps) + (given.draft_catch_up if steps else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", type=Path, metavar="TARGET.gguf")
    parser.add_argument("draft", metavar="DRAFT")
    parser.add_argument("--costs", choices=COSTS, default="large")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=1, help="prompts of each category, at most")
    parser.add_argument("-n", type=int, default=64, help="tokens an answer")
    asked = parser.parse_args()
    given = COSTS[asked.costs]

    def known(*_: Any, max_width: int, draft: Any, **__: Any) -> tuple[Costs, None]:
        found = replace(given, passes=given.passes[:max_width])
        return found if draft else replace(found, draft_step=0.0, draft_catch_up=0.0), None

    participants.known_or_measured = known
    if asked.costs != "small":  # it stands for a target whose passes are worth keeping
        load.RECYCLED_FROM = 0
    sampling = SamplingParams(temperature=asked.temp)
    with spec_cpu.load(asked.target, asked.draft, sampling=sampling) as session:
        clock = Clock(session._context)
        speedups: dict[str, list[float]] = {}
        taken: Counter[str] = Counter()
        drafting = cycles = 0.0
        for i, prompt in enumerate(read_prompts(SHIPPED)):
            if len(speedups.setdefault(prompt.category, [])) == asked.limit:
                continue
            session.reset()
            seconds, tokens, last = 0.0, 0, 0
            for step in session.generate(prompt.turns[0], max_tokens=asked.n, seed=i):
                n = step.cycle.drafted
                if tokens:  # before the first step the prompt is read, too
                    seconds += clock.seconds(given)
                clock.passes.clear()
                seconds += given.cycle(n, changed=n != last) - given.drafting(n)
                seconds += (len(step.cycle.tokens) - n - 1) * given.row
                seconds += given.recovery * (n > 0 and last == 0)
                tokens, last = tokens + len(step.tokens), n
                taken.update(step.cycle.parts.keys())
                drafting += step.cycle.seconds.draft
                cycles += 1
            speedups[prompt.category].append(tokens * given.cycle(0, changed=False) / seconds)
    means = {name: statistics.mean(each) for name, each in speedups.items()}
    every = [one for each in speedups.values() for one in each]
    print("| median | mean | least | " + " | ".join(means) + " |")
    print("| --- " * (3 + len(means)) + "|")
    cells = [statistics.median(every), statistics.mean(every), min(every), *means.values()]
    print("| " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    print(
        f"cycles {cycles:.0f}, of which with {dict(taken)}; {drafting / cycles * 1e6:.0f} us each"
    )


if __name__ == "__main__":
    main()
