"""`spec-cpu kernels`: matrix products of our own, compiled for this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from spec_cpu.errors import KernelsError

app = typer.Typer(
    help="The kernels compiled for this machine: build, status, test.", no_args_is_help=True
)


@app.command()
def build(
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile even if it was done.")] = False,
) -> None:
    """Compile them, if that was not done yet."""
    from spec_cpu.kernels.build import build
    from spec_cpu_cli.progress import progress_bar

    with progress_bar(show=True) as report:
        library = build(fresh=fresh, progress=report).library
    print(library)


@app.command()
def status() -> None:
    """Say whether they can be used here, and where they and the compiler's messages are."""
    from spec_cpu import machine
    from spec_cpu.kernels.build import find_build

    print(f"processor  {machine.processor()}")
    try:
        found = find_build()
    except KernelsError as error:
        print(f"kernels    {error}")
        return
    print(f"compiler   {found.compiler} ({found.compiler_version})")
    built = found.library.is_file()
    print(f"library    {found.library}{'' if built else ' (compiled on first use)'}")
    if found.log.is_file():
        print(f"failed     see {found.log}")


@app.command()
def test() -> None:
    """Multiply small random matrices of every format and compare: the check made at each start."""
    from spec_cpu.kernels.build import build
    from spec_cpu.llama.kernels import load_kernels
    from spec_cpu_cli.progress import progress_bar

    with progress_bar(show=True) as report:
        library = build(progress=report).library
    print(f"ok: {load_kernels(library)}")
