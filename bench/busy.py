"""How fast text comes while the machine is not ours alone.

    python bench/busy.py [--target T.gguf] [--draft D.gguf] [--llama-cpp DIR] [--runs N]

Each run is a process of its own, timed alone (quiet), beside a program that keeps every processor
busy, and beside a second run of its own kind that goes on and on; round by round, so that the
machine's phases meet all alike. Runs are plain decoding with our kernels and with stock ones,
decoding with a draft, and, from the folder --llama-cpp, llama.cpp's own `llama-bench`. A run that
takes longer than --limit seconds is ended, and counts as if it had come to its end then. A cell is
the median and the worst of the runs, in tokens a second, and what they are of the quiet median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from spec_cpu import defaults
from spec_cpu.machine import hardware
from spec_cpu.models.catalog import load_catalog
from spec_cpu.models.fetch import resolve

PROMPT = "Explain how a sailing boat can move against the wind."
TOKENS = 64
ENDLESS = 1500  # tokens of a run that another one is timed beside
WARM_UP = 3.0  # seconds that such a run has to load its model
CONDITIONS = ("quiet", "beside busy loops", "beside a second run")
SPEC_CPU = (
    *(sys.executable, "-c", "from spec_cpu_cli.main import main; main()"),
    *("run", "--json", "--ignore-eos", "--temp", "0"),
)
LOOP = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(100_000):
        pass
"""


@dataclass(slots=True)
class Arm:
    """A program to run: its command for a number of tokens, and its speed from what it prints."""

    name: str
    command: Callable[[int], list[str]]
    speed: Callable[[str], float]
    speeds: dict[str, list[float]] = field(
        default_factory=lambda: {each: [] for each in CONDITIONS}
    )


def main() -> None:
    pair = load_catalog().pair(defaults.PAIR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=pair.target)
    parser.add_argument("--draft", default=pair.draft)
    parser.add_argument("--llama-cpp", type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20, help="seconds for a run")
    parser.add_argument("--arms", default="", help="names, with commas; default: all")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.arms.split(",") if name]
    arms = [arm for arm in all_arms(arguments) if not wanted or arm.name in wanted]
    for _ in range(arguments.runs):
        for arm in arms:
            for condition, others in conditions(arm, arguments.limit).items():
                with others():
                    arm.speeds[condition].append(timed(arm, arguments.limit))
    print(f"{hardware.processor()}, {os.cpu_count()} processors, {arguments.runs} runs\n")
    print(table(arms))


def all_arms(arguments: argparse.Namespace) -> Iterator[Arm]:
    target = str(resolve(arguments.target))
    for name, draft, kernels in (
        ("ours", "none", "auto"),
        ("ours (stock kernels)", "none", "off"),
        ("ours (with a draft)", arguments.draft, "auto"),
    ):
        options = [*SPEC_CPU, "-m", target, "-d", draft, "--kernels", kernels]
        yield Arm(name, lambda n, options=options: [*options, "-n", str(n), PROMPT], of_ours)
    if arguments.llama_cpp is not None:
        program = [str(arguments.llama_cpp / "llama-bench"), "-m", target, "-p", "0", "-r", "1"]
        program += ["-t", str(hardware.usable_cores()), "-o", "json"]
        yield Arm("llama-bench", lambda n: [*program, "-n", str(n)], of_llama_bench)


def of_ours(printed: str) -> float:
    return float(json.loads(printed)["tokens_per_second"])


def of_llama_bench(printed: str) -> float:
    return float(json.loads(printed)[0]["avg_ts"])


def conditions(arm: Arm, limit: float) -> dict[str, Callable[[], object]]:
    """What else runs while `arm` is timed."""
    loops = [[sys.executable, "-c", LOOP, str(2 * limit)]] * (os.cpu_count() or 1)
    quiet, busy, beside = CONDITIONS
    return {
        quiet: nullcontext,
        busy: lambda: running(loops, 0.5),
        beside: lambda: running([arm.command(ENDLESS)], WARM_UP),
    }


@contextmanager
def running(commands: list[list[str]], seconds: float) -> Iterator[None]:
    """Programs that run while entered; they have `seconds` to start."""
    with ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(seconds)
        yield


def timed(arm: Arm, limit: float) -> float:
    """Tokens a second of one run; at most so many where it had to be ended."""
    try:
        done = subprocess.run(
            arm.command(TOKENS), capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return TOKENS / limit
    return arm.speed(done.stdout)


def table(arms: list[Arm]) -> str:
    """In Markdown."""
    lines = ["| tokens a second | " + " | ".join(CONDITIONS) + " |", "|---" * 4 + "|"]
    for arm in arms:
        quiet = statistics.median(arm.speeds[CONDITIONS[0]])
        cells = [
            f"{statistics.median(speeds):.1f}, worst {min(speeds):.1f} "
            f"({statistics.median(speeds) / quiet:.2f}, {min(speeds) / quiet:.2f})"
            for speeds in arm.speeds.values()
        ]
        lines.append(f"| {arm.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
