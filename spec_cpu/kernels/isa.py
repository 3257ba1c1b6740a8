"""The instruction sets that the kernels are written for, and which of them this machine has."""

from __future__ import annotations

import os
from dataclasses import dataclass

from spec_cpu.errors import KernelsError, UsageError
from spec_cpu.machine import hardware

VARIABLE = "SPEC_CPU_ISA"


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What a library is compiled for.

    Attributes:
        name: as a person gives it.
        needs: what the processor must have; Linux's names.
        flags: for the compiler. They say every instruction: with those of the machine at hand
            (`-march=native`) a lesser set would be other code here than on a lesser machine.
    """

    name: str
    needs: frozenset[str]
    flags: tuple[str, ...]


def _set(name: str, *instructions: str) -> InstructionSet:
    flags = tuple(f"-m{each.replace('_', '')}" for each in instructions)
    return InstructionSet(name, frozenset(instructions), flags)


_AVX2 = ("avx2", "fma", "f16c")
_AVX_512 = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq")
SETS = (
    _set("avx-512-vnni", *_AVX_512, "avx512_vnni"),
    _set("avx-512", *_AVX_512),
    _set("avx-vnni", *_AVX2, "avx_vnni"),
    _set("avx2", *_AVX2),
)
"""The best first."""


def available() -> list[InstructionSet]:
    """Those that this processor has, the best first; may be none."""
    has = set(hardware.instructions())
    return [each for each in SETS if each.needs <= has]


def choose(name: str | None = None) -> InstructionSet:
    """The set called `name`; default: what SPEC_CPU_ISA says, or the best that there is here.

    Raises:
        UsageError: no such set.
        KernelsError: this processor does not have it, or has none.
    """
    name = name or os.environ.get(VARIABLE) or None
    if name is None:
        here = available()
        if here:
            return here[0]
        name = SETS[-1].name
    chosen = next((each for each in SETS if each.name == name), None)
    if chosen is None:
        known = ", ".join(each.name for each in SETS)
        raise UsageError(f"no such instruction set: {name}; there are {known}")
    missing = chosen.needs.difference(hardware.instructions())
    if missing:
        names = ", ".join(sorted(missing))
        here_too = ", ".join(each.name for each in available())
        instead = f"; it has {here_too}" if here_too else ""
        raise KernelsError(
            f"this processor lacks {names}, which the kernels for {name} need{instead}: "
            "llama.cpp's own code computes, which is slower"
        )
    return chosen
