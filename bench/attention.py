"""Attention alone: milliseconds of all layers of a pass, without the rest of a model.

    python bench/attention.py [--isa avx2] [--rounds N] [--threads N]

Compiles the kernels with `attention.cpp`. Conversations lie mixed in one cache, with free
cells between them, and are computed in one pass; beside it stands the sum of the passes over each
of them with a cache of its own, in turn. Medians.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from spec_cpu.kernels.build import SOURCE, find_build

PROGRAM = Path(__file__).with_suffix(".cpp")
SMALL = ("0.5 B", 24, 14, 2, 64)  # layers, heads, of keys, width: the shape of Qwen2.5 0.5B
MIXED = ("500:1", "505:2", "500:3", "510:4", "500:5", "500:1", "490:2", "500:3")
CASES = (
    (*SMALL, ("128:4",)),
    *((*SMALL, (f"4096:{n}",)) for n in (1, 4, 8)),
    ("3 layers of 0.5 B", 3, 14, 2, 64, ("4608:512",)),
    ("8 layers of 8 B", 8, 32, 8, 128, ("2048:1",)),
    ("8 layers of 8 B", 8, 32, 8, 128, ("2048:4",)),
    (*SMALL, MIXED),
    ("8 layers of 8 B", 8, 32, 8, 128, MIXED),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--isa", help="instruction set; default: the best here")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    print("| shape | conversations (length:tokens) | one pass | sum of a pass each | ratio |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(given.isa, Path(folder))
        for name, *shape, conversations in CASES:
            numbers = map(str, (*shape, given.threads, given.rounds))
            command = [program, *numbers, *conversations]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            together, alone = map(float, done.stdout.split())
            beside = f"{alone:.1f} ms | {together / alone:.2f}" if alone else "- | -"
            print(f"| {name} | {' '.join(conversations)} | {together:.2f} ms | {beside} |")


def compiled(isa: str | None, folder: Path) -> Path:
    found = find_build(isa)
    program = folder / "attention"
    sources = map(str, [PROGRAM, *SOURCE.glob("*.cpp")])
    rpath = f"-Wl,-rpath,{found.llama_cpp / 'lib'}"
    command = [*found.compiler, *found.flags, f"-I{SOURCE}", *sources, "-o", str(program)]
    subprocess.run([*command, *found.libraries, rpath], check=True)
    return program


if __name__ == "__main__":
    main()
