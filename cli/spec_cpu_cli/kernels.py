"""`spec-cpu kernels`: matrix products of our own, compiled for this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu.cache import can_hold_files
from spec_cpu.errors import KernelsError
from spec_cpu_cli.options import help_alone
from spec_cpu_cli.terminal import print_text

if TYPE_CHECKING:
    from spec_cpu.kernels.build import Build

app = typer.Typer(
    help="Code compiled for this processor: build, status, test.",
    invoke_without_command=True,
    callback=help_alone,
)


@app.command()
def build(
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile again.")] = False,
    isa: Annotated[
        str | None,
        typer.Option(
            metavar="SET",
            envvar="SPEC_CPU_ISA",
            help="The instruction set: avx2, avx-vnni, avx-512, avx-512-vnni. What "
            "SPEC_CPU_ISA says holds for all commands.",
            show_default="the best of this machine",
        ),
    ] = None,
) -> None:
    """Compile it, if that was not done yet."""
    from spec_cpu.kernels.build import build
    from spec_cpu_cli.progress import progress_bar

    with progress_bar(show=True) as report:
        library = build(isa, fresh=fresh, progress=report).library
    print(library)


@app.command()
def status() -> None:
    """Say whether it can be used here, where it is, and what runs each format of models."""
    from spec_cpu.kernels import isa
    from spec_cpu.kernels.build import find_build
    from spec_cpu.machine import hardware

    print_text(f"processor  {hardware.processor()}")
    print_text(f"supports   {', '.join(each.name for each in isa.available()) or 'none'}")
    try:
        found = find_build()
    except KernelsError as error:
        print_text(f"kernels    {error}")
        return
    print_text(f"kernels    for {found.isa.name}")
    print_text(f"compiler   {shlex.join(found.compiler)} ({found.compiler_version})")
    built = found.is_whole()
    print_text(f"library    {found.library}{'' if built else f' ({_when(found)})'}")
    if found.log.is_file():
        print_text(f"failed     see {found.log}")
    elif built:
        _print_formats(found.library)


def _when(found: Build) -> str:
    """When a library that is not there will be."""
    if can_hold_files(found.folder):
        return "compiled on first use, in a minute or two"
    return f"not there, and {found.folder.parent} cannot be written to"


def _print_formats(library: Path) -> None:
    from spec_cpu.llama.kernels import formats, load_kernels

    try:
        instructions = load_kernels(library)
    except KernelsError as error:
        print_text(f"failed     {error}")
        return
    for name, fault in formats(library).items():
        why = f"llama.cpp: the kernel failed its self-test ({fault})" if fault else None
        print_text(f"{name:<10} {why or f'kernel for {instructions}: it passed its self-test'}")
    print_text("others     llama.cpp: there is no kernel")
    print_text("elsewhere  llama.cpp, there: layers that --rpc puts on other machines")


@app.command()
def test() -> None:
    """Multiply small random matrices of every format and compare: the check made at each start."""
    from spec_cpu.kernels.ready import ready
    from spec_cpu.llama.kernels import formats, load_kernels
    from spec_cpu_cli.progress import progress_bar

    with progress_bar(show=True) as report:
        library = ready(progress=report).library
    wrong = {name: fault for name, fault in formats(library).items() if fault}
    if wrong:
        raise KernelsError("; ".join(f"{name}: {fault}" for name, fault in wrong.items()))
    print(f"ok: {load_kernels(library)}")
