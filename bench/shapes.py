"""Models at their true size, with random weights: what passes cost, and what follows from it.

    python bench/shapes.py write [--shapes NAMES] [--formats Q4_K_M,Q4_0,Q8_0] [--folder DIR]
    python bench/shapes.py measure [the same] [--rounds N] [--seconds S] [--isa avx2] [--ik DIR]
    python bench/shapes.py table [the same]

`write` makes the files (see `shape_files.py`), `measure` times them: passes over 1 to 9 tokens,
the steps of a draft of the same family beside its target, prompts, loading, memory; with our
kernels, with llama.cpp's, and with ik_llama.cpp's where --ik names the folder of its `llama-bench`.
Each engine runs in a process of its own, one after the other, round by round. What was measured is
kept in --state, a file for each model and engine: an interrupted run goes on where it ended, and a
cell whose file is deleted is measured anew. `table` shows the (lower) medians over the rounds of
each round's best, and what the formulas of `costs.theory` make of them for acceptances that are
assumed.

--isa chooses a lesser instruction set for our kernels (as SPEC_CPU_ISA does). What runs beside them
and against them should have no more: --python names the interpreter of an environment whose
llama-cpp-python was built for it.

ik_llama.cpp's llama-bench works out the logits of a pass's last token alone, ours and llama.cpp's
those of all, as a verification needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

from shape_cells import ENGINES, IK, OURS, STOCK, Cell, RandomModel, Record
from shape_files import BASE, SHAPES
from shape_passes import IN_A_ROW
from shape_tables import LONG_PROMPT, SHORT_PROMPT, WIDTHS, tables

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.kernels import isa
from spec_cpu.machine import hardware

ROOT = Path(__file__).parents[1]
WORKER = Path(__file__).with_name("shape_passes.py")
READ_BYTES = 1 << 24  # at a time
SWEEPS = (2, 10)  # over all widths, at least and at most
SWEPT_BYTES = 6e9  # of weights, by the passes of one width: small models take no time


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
    parser.add_argument("--engines", default=",".join(ENGINES), help="default: all")
    parser.add_argument("--ik", type=Path, metavar="DIR", help="with ik_llama.cpp's llama-bench")
    given = parser.parse_args()
    try:
        models = chosen(given.shapes, given.formats)
        check_known(given.engines, ENGINES)
        given.isa = isa.choose(given.isa).name
        if given.command == "table":
            print("\n".join(tables(models, given.state / given.isa)))
            return
        for model in models:
            model.write(given.folder)
        if given.command == "measure":
            measure(models, given)
    except SpecCpuError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


def chosen(shapes: str, formats: str) -> list[RandomModel]:
    """The models of both lists (names with commas between them).

    Raises:
        UsageError: an unknown name.
    """
    check_known(shapes, SHAPES)
    check_known(formats, BASE)
    return [RandomModel(each, kind) for kind in formats.split(",") for each in shapes.split(",")]


def check_known(names: str, known: Iterable[str]) -> None:
    for name in names.split(","):
        if name not in known:
            raise UsageError(f"{name} is none of {', '.join(known)}")


def measure(models: Sequence[RandomModel], given: argparse.Namespace) -> None:
    """Measure what is missing of each cell, the engines in turn, until the time is up."""
    engines: dict[str, Engine] = {
        OURS: Python(given.python, ours=True, isa=given.isa),
        STOCK: Python(given.python, ours=False, isa=given.isa),
    }
    if given.ik is not None:
        engines[IK] = LlamaBench(given.ik / "llama-bench")
    engines = {name: each for name, each in engines.items() if name in given.engines.split(",")}
    folder = given.state / given.isa
    begin = perf_counter()
    for model in models:
        cells = {name: Cell.read(folder, model, name) for name in engines}
        for name, records, prompt in missing(cells, given.rounds, long=not given.no_long):
            spent = perf_counter() - begin
            expected = records[-1]["seconds"] if records else 0.0
            if given.seconds is not None and spent + expected > given.seconds:
                print("not finished: the same command goes on", flush=True)
                return
            for each in (model, model.draft):
                if each is not None:
                    read_through(each.file(given.folder))
            record = engines[name].run(model, given.folder, prompt)
            records.append(record | {"seconds": perf_counter() - begin - spent})
            cells[name].save()
            print(f"{model.name}, {name}: {records[-1]['seconds']:.0f} s", flush=True)


def read_through(file: Path) -> None:
    """Have a file in the system's cache: how fast the disk is, is not the question."""
    with file.open("rb", buffering=0) as opened:
        while opened.read(READ_BYTES):
            pass


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
    isa: str  # of our kernels

    def run(self, model: RandomModel, folder: Path, prompt: int) -> Record:
        file = model.file(folder)
        command = [self.interpreter, str(WORKER), str(file), "--prompts", str(prompt)]
        if self.ours:
            command.append("--ours")
        if prompt == SHORT_PROMPT:
            command += ["--widths", ",".join(map(str, WIDTHS)), "--sweeps", str(sweeps(file))]
            if model.draft is not None:
                command += ["--draft", str(model.draft.file(folder))]
        said, _ = output(command, {"PYTHONPATH": str(ROOT), isa.VARIABLE: self.isa})
        return dict(json.loads(said))


@dataclass(frozen=True, slots=True)
class LlamaBench:
    """ik_llama.cpp's benchmark, with weights repacked as they are loaded."""

    program: Path

    def run(self, model: RandomModel, folder: Path, prompt: int) -> Record:
        file = model.file(folder)
        short = prompt == SHORT_PROMPT
        lengths = [*(WIDTHS * sweeps(file)), prompt] if short else [prompt]
        command = [str(self.program), "-m", str(file), "-p", ",".join(map(str, lengths))]
        command += ["-n", "0", "-r", str(IN_A_ROW if short else 1), "-w", "0"]
        command += ["-rtr", "1", "-t", str(hardware.threads(None)), "-o", "json"]
        start = perf_counter()
        said, peak = output(command, {})
        seconds = perf_counter() - start
        samples: dict[int, list[float]] = {}
        for test in json.loads(said):
            times = [nanoseconds / 1e9 for nanoseconds in test["samples_ns"]]
            samples.setdefault(test["n_prompt"], []).extend(times)
        loaded = seconds - sum(map(sum, samples.values()))
        return {
            "kernels": IK,
            "load": loaded,
            "peak": peak,
            "prompts": {str(prompt): samples.pop(prompt)},
            "passes": {str(n): times for n, times in samples.items()},
            "draft_steps": [],
        }


def sweeps(file: Path) -> int:
    fewest, most = SWEEPS
    return min(most, max(fewest, int(SWEPT_BYTES / file.stat().st_size)))


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


if __name__ == "__main__":
    main()
