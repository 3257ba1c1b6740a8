"""Models at their true size, with random weights: what passes cost, and what follows from it.

    python bench/shapes.py write [--shapes NAMES] [--formats Q4_K_M,Q4_0,Q8_0] [--folder DIR]
    python bench/shapes.py measure [the same] [--rounds N] [--seconds S] [--isa avx2] [--ik DIR]
    python bench/shapes.py table [the same]

`write` makes the files (see `shape_files.py`), `measure` times them: passes over 1 to 9 tokens,
the steps of a draft of the same family beside its target, prompts, loading, memory; with our
kernels, with llama.cpp's, and with ik_llama.cpp's where --ik names the folder of its `llama-bench`.
Each engine runs in a process of its own, one after the other, round by round. What was measured is
kept in --state, a file for each model and engine: an interrupted run goes on where it ended, and a
cell whose file is deleted is measured anew. `table` shows the medians, and what the formulas of
`spec_cpu.theory` make of them for acceptances that are assumed.

--isa chooses a lesser instruction set for our kernels (as SPEC_CPU_ISA does). What runs beside them
and against them should have no more: --python names the interpreter of an environment whose
llama-cpp-python was built for it.

ik_llama.cpp's llama-bench works out the logits of a pass's last token alone, ours and llama.cpp's
those of all, as a verification needs them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from shape_files import BASE, DRAFTS, SHAPES, write

from spec_cpu import machine, theory
from spec_cpu.errors import SpecCpuError, UsageError

Record = dict[str, Any]

ROOT = Path(__file__).parents[1]
WORKER = Path(__file__).with_name("shape_passes.py")
OURS, STOCK, IK = "ours", "llama.cpp", "ik_llama.cpp"
WIDTHS = tuple(range(1, 10))
SHORT_PROMPT, LONG_PROMPT = 256, 2000
ALPHAS = (0.6, 0.7, 0.8)  # assumed: random weights accept nothing
REPEATS = (3, 20)  # of a pass, at least and at most
REPEATED_BYTES = 6e9  # of weights, in the passes of one width


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("write", "measure", "table"))
    parser.add_argument("--shapes", default=",".join(SHAPES), help="default: all")
    parser.add_argument("--formats", default="Q4_K_M", help=f"of {','.join(BASE)}")
    parser.add_argument("--folder", type=Path, default=Path("shapes"), help="of the GGUF files")
    parser.add_argument("--state", type=Path, default=Path("shapes/state"), help="of the results")
    parser.add_argument("--rounds", type=int, default=3, help="of passes and short prompts")
    parser.add_argument("--seconds", type=float, help="begin nothing that would end later")
    parser.add_argument("--no-long", action="store_true", help=f"no prompts of {LONG_PROMPT:,}")
    parser.add_argument("--isa", help="instruction set of our kernels (default: the machine's)")
    parser.add_argument("--python", default=sys.executable, help="interpreter for both")
    parser.add_argument("--ik", type=Path, metavar="DIR", help="with ik_llama.cpp's llama-bench")
    given = parser.parse_args()
    try:
        models = chosen(given.shapes, given.formats)
        if given.command == "table":
            print("\n".join(tables(models, given.state / (given.isa or "native"))))
            return
        for model in models:
            model.write(given.folder)
        if given.command == "measure":
            measure(models, given)
    except SpecCpuError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A shape in a format."""

    shape: str
    file_format: str

    @property
    def name(self) -> str:
        return f"{self.shape}-{self.file_format.lower()}"

    @property
    def draft(self) -> RandomModel | None:
        draft = DRAFTS.get(self.shape)
        return None if draft is None else RandomModel(draft, self.file_format)

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.gguf"

    def write(self, folder: Path) -> None:
        """Write the file, and the draft's, unless they are there."""
        if self.draft is not None:
            self.draft.write(folder)
        if not self.file(folder).exists():
            start = perf_counter()
            write(SHAPES[self.shape], self.shape, self.file(folder), self.file_format)
            seconds = perf_counter() - start
            size = self.file(folder).stat().st_size / 1e9
            print(f"{self.file(folder)}: {size:.2f} GB in {seconds:.0f} s", flush=True)


def chosen(shapes: str, formats: str) -> list[RandomModel]:
    """The models of both lists (names with commas between them).

    Raises:
        UsageError: an unknown name.
    """
    for names, known in ((shapes, SHAPES), (formats, BASE)):
        for name in names.split(","):
            if name not in known:
                raise UsageError(f"{name} is none of {', '.join(known)}")
    return [RandomModel(each, kind) for kind in formats.split(",") for each in shapes.split(",")]


@dataclass(slots=True)
class Cell:
    """What was measured of a model with an engine; kept in a file.

    Attributes:
        rounds: passes and short prompts, a record of `shape_passes.py` a round.
        long: the same of a long prompt.
    """

    path: Path
    rounds: list[Record] = field(default_factory=list)
    long: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, model: RandomModel, engine: str) -> Cell:
        path = folder / f"{model.name}-{engine}.json"
        if not path.exists():
            return cls(path)
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, known["rounds"], known["long"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path} is damaged: delete it, to measure anew") from None

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"rounds": self.rounds, "long": self.long}), encoding="utf-8")
        part.replace(self.path)

    def passes(self, n: int) -> float:
        """Seconds of a pass over n tokens."""
        return _median_of(self.rounds, lambda record: record["passes"].get(str(n), []))

    def prompt(self, n: int) -> float:
        """Seconds of a prompt of n tokens."""
        records = self.rounds + self.long
        return _median_of(records, lambda record: record["prompts"].get(str(n), []))

    @property
    def draft_step(self) -> float:
        """Seconds of a draft's step beside the target's passes."""
        return _median_of(self.rounds, lambda record: record["draft_steps"])

    @property
    def memory(self) -> float:
        """Bytes after the prompts; nan where only the most is known."""
        return _median_of(self.rounds, lambda record: [record.get("memory", math.nan)])

    @property
    def peak(self) -> float:
        """Bytes at the most."""
        return _median_of(self.rounds, lambda record: [record["peak"]])

    @property
    def load(self) -> float:
        """Seconds of loading, the best: with the file in the system's cache."""
        return min((record["load"] for record in self.rounds), default=float("nan"))


def _median_of(records: Sequence[Record], values: Callable[[Record], list[float]]) -> float:
    found = [value for record in records for value in values(record)]
    return statistics.median(found) if found else float("nan")


def measure(models: Sequence[RandomModel], given: argparse.Namespace) -> None:
    """Measure what is missing of each cell, the engines in turn, until the time is up."""
    engines: dict[str, Engine] = {
        OURS: Python(given.python, ours=True, isa=given.isa),
        STOCK: Python(given.python, ours=False, isa=None),
    }
    if given.ik is not None:
        engines[IK] = LlamaBench(given.ik / "llama-bench")
    folder = given.state / (given.isa or "native")
    begin = perf_counter()
    for model in models:
        cells = {name: Cell.read(folder, model, name) for name in engines}
        for name, records, prompt in missing(cells, given.rounds, long=not given.no_long):
            spent = perf_counter() - begin
            expected = records[-1]["seconds"] if records else 0.0
            if given.seconds is not None and spent + expected > given.seconds:
                print("not finished: the same command goes on", flush=True)
                return
            record = engines[name].run(model, given.folder, prompt)
            records.append(record | {"seconds": perf_counter() - begin - spent})
            cells[name].save()
            print(f"{model.name}, {name}: {records[-1]['seconds']:.0f} s", flush=True)


def missing(
    cells: dict[str, Cell], rounds: int, *, long: bool
) -> Iterator[tuple[str, list[Record], int]]:
    """What is left to measure: the engine, the list that the record belongs to, the prompt."""
    for i in range(rounds):
        for name, cell in cells.items():
            if len(cell.rounds) <= i:
                yield name, cell.rounds, SHORT_PROMPT
    for name, cell in cells.items():
        if long and not cell.long:
            yield name, cell.long, LONG_PROMPT


class Engine(Protocol):
    """What computes passes, in a process of its own."""

    def run(self, model: RandomModel, folder: Path, prompt: int) -> Record:
        """Time a prompt and, beside a short one, passes of all widths and the draft's steps."""
        ...


@dataclass(frozen=True, slots=True)
class Python:
    """llama-cpp-python, with our kernels or with its own."""

    interpreter: str
    ours: bool
    isa: str | None

    def run(self, model: RandomModel, folder: Path, prompt: int) -> Record:
        file = model.file(folder)
        command = [self.interpreter, str(WORKER), str(file), "--prompts", str(prompt)]
        if self.ours:
            command.append("--ours")
        if prompt == SHORT_PROMPT:
            command += ["--widths", ",".join(map(str, WIDTHS)), "--repeats", str(repeats(file))]
            if model.draft is not None:
                command += ["--draft", str(model.draft.file(folder))]
        isa = {} if self.isa is None else {"SPEC_CPU_ISA": self.isa}
        said, _ = output(command, {"PYTHONPATH": str(ROOT)} | isa)
        return dict(json.loads(said))


@dataclass(frozen=True, slots=True)
class LlamaBench:
    """ik_llama.cpp's benchmark, with weights repacked as they are loaded."""

    program: Path

    def run(self, model: RandomModel, folder: Path, prompt: int) -> Record:
        file = model.file(folder)
        short = prompt == SHORT_PROMPT
        lengths = [*WIDTHS, prompt] if short else [prompt]
        # The first of each length is dropped in place of a warm-up, which no one times.
        times = repeats(file) + 1 if short else 1
        command = [str(self.program), "-m", str(file), "-p", ",".join(map(str, lengths))]
        command += ["-n", "0", "-r", str(times), "-w", "0", "-rtr", "1", "-o", "json"]
        command += ["-t", str(machine.threads(None))]
        start = perf_counter()
        said, peak = output(command, {})
        seconds = perf_counter() - start
        samples = {
            test["n_prompt"]: [nanoseconds / 1e9 for nanoseconds in test["samples_ns"]]
            for test in json.loads(said)
        }
        kept = {n: each[1:] or each for n, each in samples.items()}
        return {
            "kernels": IK,
            "load": seconds - sum(map(sum, samples.values())),
            "peak": peak,
            "prompts": {str(prompt): kept.pop(prompt)},
            "passes": {str(n): each for n, each in kept.items()},
            "draft_steps": [],
        }


def repeats(file: Path) -> int:
    """Passes of a width: more of a small model's, which take no time."""
    fewest, most = REPEATS
    return min(most, max(fewest, int(REPEATED_BYTES / file.stat().st_size)))


def output(command: list[str], environment: dict[str, str]) -> tuple[str, int]:
    """What a command writes, and the bytes of memory that it took at the most.

    Raises:
        UsageError: it cannot be run, or failed.
    """
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=complaints
            )
        except OSError as error:
            raise UsageError(f"cannot run {command[0]}: {error.strerror}") from None
        assert process.stdout is not None
        with process.stdout as pipe:
            said = pipe.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        last = complaints.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    if process.returncode:
        raise UsageError(f"{' '.join(command)} failed ({process.returncode}): {last}")
    return said, 1024 * usage.ru_maxrss


def tables(models: Sequence[RandomModel], folder: Path) -> list[str]:
    """Two tables in Markdown: what was measured, and what the formulas make of it."""
    header = ["model", "kernels", "a step", "tok/s", *(f"V({n})" for n in WIDTHS[1:]), "c"]
    header += [f"prompt of {n:,}" for n in (SHORT_PROMPT, LONG_PROMPT)] + [
        "memory (at most)",
        "load",
    ]
    lines = [f"{machine.processor()}, {machine.threads(None)} threads", "", *head(header)]
    for model in models:
        for name in (OURS, STOCK, IK):
            cell = Cell.read(folder, model, name)
            if cell.rounds:
                lines.append(
                    row([model.name, name, *measured(cell, step_of_draft(folder, model, name))])
                )
    header = ["target and draft", "kernels"]
    header += [f"acceptance {alpha} (assumed)" for alpha in ALPHAS]
    lines += ["", *head(header)]
    for model in models:
        stock = Cell.read(folder, model, STOCK)
        for name in (OURS, STOCK):
            cell = Cell.read(folder, model, name)
            if model.draft is not None and cell.rounds and stock.rounds:
                pair = f"{model.name}, {model.draft.shape}"
                lines.append(row([pair, name, *expected(cell, stock)]))
    return lines


def head(cells: Sequence[str]) -> list[str]:
    return [row(cells), row(["---"] * len(cells))]


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def step_of_draft(folder: Path, model: RandomModel, engine: str) -> float:
    """Seconds of a step of the model's draft: beside the target, or alone where that is unknown."""
    step = Cell.read(folder, model, engine).draft_step
    if model.draft is None or not math.isnan(step):
        return step
    return Cell.read(folder, model.draft, engine).passes(1)


def measured(cell: Cell, draft_step: float) -> list[str]:
    step = cell.passes(1)
    return [
        f"{1e3 * step:.1f} ms",
        f"{1 / step:.1f}",
        *(f"{cell.passes(n) / step:.2f}" for n in WIDTHS[1:]),
        number(draft_step / step, ".3f"),
        *(number(n / cell.prompt(n), ".0f", " tok/s") for n in (SHORT_PROMPT, LONG_PROMPT)),
        f"{number(cell.memory / 1e9, '.2f')} ({cell.peak / 1e9:.2f}) GB",
        f"{cell.load:.1f} s",
    ]


def number(value: float, spec: str, unit: str = "") -> str:
    """A number as a cell has it; a dash where it was not measured."""
    return "-" if math.isnan(value) else f"{value:{spec}}{unit}"


def expected(cell: Cell, stock: Cell) -> list[str]:
    """For each of `ALPHAS` the best k and its speedup over the same kernels' plain decoding; and
    over llama.cpp's.
    """
    plain = cell.passes(1)
    costs = [cell.passes(n) / plain for n in WIDTHS]
    c, gain = cell.draft_step / plain, stock.passes(1) / plain
    texts = []
    for alpha in ALPHAS:
        k = int(theory.best_k(alpha, c, len(WIDTHS) - 1, lambda n: np.interp(n, WIDTHS, costs)))
        speedup = float(theory.speedup(alpha, k, c, lambda n: np.interp(n, WIDTHS, costs)))
        texts.append(f"k = {k}: {speedup:.2f}, over llama.cpp {speedup * gain:.2f}")
    return texts


if __name__ == "__main__":
    main()
