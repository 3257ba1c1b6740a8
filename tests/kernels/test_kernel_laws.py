"""The laws of `laws.cpp`, for every set of instructions that this processor has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spec_cpu import machine
from spec_cpu.errors import KernelsError
from spec_cpu.kernels import build

LAWS = Path(__file__).with_name("laws.cpp")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
ROUNDS = 12

INSTRUCTIONS = {
    "AVX2": (("avx2", "fma", "f16c"), ("-mavx2", "-mfma", "-mf16c")),
    "AVX-VNNI": (("avx_vnni",), ("-mavx2", "-mfma", "-mf16c", "-mavxvnni")),
    "AVX-512": (("avx512bw", "avx512vl", "avx512dq"), ("-march=skylake-avx512",)),
    "AVX-512 VNNI": (("avx512bw", "avx512_vnni"), ("-march=cascadelake",)),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_laws(name: str, tmp_path: Path) -> None:
    """Under sanitizers of addresses and of undefined behaviour."""
    needed, flags = INSTRUCTIONS[name]
    if not set(needed) <= set(machine.instructions()):
        pytest.skip(f"this processor has no {name}")
    program = compiled(tmp_path / "laws", flags)
    done = subprocess.run(
        [program, "1", str(ROUNDS)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == f"{name}: ok\n", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def compiled(program: Path, flags: tuple[str, ...]) -> Path:
    try:
        found = build.find_build()
    except KernelsError as error:
        pytest.skip(str(error))
    native = Path(build.__file__).parent / "native"
    libraries = found.llama_cpp / "lib"
    subprocess.run(
        [
            *(found.compiler, "-std=c++17", "-O1", *flags, *SANITIZERS, "-fopenmp", "-Wno-psabi"),
            *(f"-I{native}", f"-I{found.llama_cpp.parent / 'include'}"),
            *(map(str, [*native.glob("*.cpp"), LAWS])),
            *("-o", str(program), f"-L{libraries}", "-l:libggml-base.so.0"),
            f"-Wl,-rpath,{libraries}",
        ],
        check=True,
        timeout=300,
    )
    return program
