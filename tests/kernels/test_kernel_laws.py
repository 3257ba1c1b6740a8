"""The laws of `laws.cpp`, for every set of instructions that this processor has.

Checked on the library itself, compiled as it is for those who use it: by g++, and for the least and
the best set by clang++, if it is here. And under sanitizers of addresses and of undefined
behaviour, which need a build of their own.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import spec_cpu.kernels
from spec_cpu.errors import KernelsError
from spec_cpu.kernels import isa
from spec_cpu.kernels.build import Build, find_build, make

LAWS = Path(__file__).with_name("laws.cpp")
NATIVE = Path(spec_cpu.kernels.__file__).parent / "native"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
ROUNDS, ROUNDS_WITH_SANITIZERS = 12, 4

SETS = {  # and what the library says that it was compiled for
    "avx2": "AVX2",
    "avx-vnni": "AVX-VNNI",
    "avx-512": "AVX-512",
    "avx-512-vnni": "AVX-512 VNNI",
}
# The least, and the best of this machine: between them lie a few lines.
ENDS = sorted({"avx2", *(each.name for each in isa.available()[:1])})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "name"),
    [*(("g++", name) for name in SETS), *(("clang++", name) for name in ENDS)],
)
def test_laws(name: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiler != "g++" or name not in ENDS:  # other tests use none of these
        monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path))  # who shares one compiles in turn
    found = found_for(name, compiler)
    library = make(found).library
    program = tmp_path / "laws"
    compile_laws(found, [*found.flags, "-O1", str(LAWS), str(library)], program)
    assert_laws(program, SETS[name], ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_laws_with_sanitizers(name: str, tmp_path: Path) -> None:
    found = found_for(name, "g++")
    sources = map(str, [*NATIVE.glob("*.cpp"), LAWS])
    program = tmp_path / "laws"
    compile_laws(found, [*found.flags, "-O0", *SANITIZERS, *sources], program)
    assert_laws(program, SETS[name], ROUNDS_WITH_SANITIZERS)


def test_every_set_has_its_laws() -> None:
    assert sorted(SETS) == sorted(each.name for each in isa.SETS)


def found_for(name: str, compiler: str) -> Build:
    path = shutil.which(compiler)
    if path is None:
        pytest.skip(f"there is no {compiler}")
    try:
        return find_build(name, compiler=path)
    except KernelsError as error:
        pytest.skip(str(error))


def compile_laws(found: Build, arguments: list[str], program: Path) -> None:
    libraries = f"-Wl,-rpath,{found.llama_cpp / 'lib'}"
    command = [*found.compiler, f"-I{NATIVE}", *arguments, "-o", str(program), *found.libraries]
    subprocess.run([*command, libraries], check=True, timeout=900)


def assert_laws(program: Path, instructions: str, rounds: int) -> None:
    done = subprocess.run(
        [program, "1", str(rounds)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.stdout == f"{instructions}: ok\n", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
