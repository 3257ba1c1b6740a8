"""`spec-cpu memory`: what is kept of earlier texts to draft from, and getting rid of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from spec_cpu import defaults
from spec_cpu.errors import MemoryFileError, SpecCpuError
from spec_cpu_cli import options as opt
from spec_cpu_cli.removal import removing
from spec_cpu_cli.terminal import print_text

app = typer.Typer(
    help="What is kept of earlier texts to guess from: show, clear.",
    invoke_without_command=True,
    callback=opt.help_alone,
)

File = Annotated[
    Path | None,
    typer.Argument(
        callback=opt.home,
        help="A file that was given to --memory.",
        show_default="all in the cache",
    ),
]


@app.command()
def show(file: File = None) -> None:
    """Say what is kept, and how much it is."""
    for path in _files(file):
        if not path.exists():
            print_text(f"{path}: rests of a process that was killed while it saved")
            continue
        stat = path.stat()
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(stat.st_mtime))
        try:
            contents = _contents(path)
        except MemoryFileError:
            if file is not None:
                raise
            contents = "no memory of spec-cpu"  # one such file must not hide the others
        print_text(f"{path}  {stat.st_size / 1e3:,.0f} kB, written {written}: {contents}")


@app.command()
def clear(file: File = None) -> None:
    """Remove it: nothing of what was said is kept."""
    from spec_cpu.draft.memory import clear_memory

    for path in _files(file):
        kept = path
        if file is not None:
            _contents(path)  # somebody's own file that is no memory stays
            kept = Path(os.path.realpath(path))  # what a link leads to holds what was said
        with removing(kept, "saving"):
            clear_memory(kept)
        print(f"removed {kept}")


def _files(file: Path | None) -> list[Path]:
    """The files that are meant."""
    from spec_cpu.draft.memory import memories, memory_dir

    if file is not None:
        try:
            file.stat()
        except FileNotFoundError:
            raise MemoryFileError(f"there is no memory {file}") from None
        except OSError as error:
            raise MemoryFileError(f"cannot read {file}: {error.strerror}") from None
        return [file]
    found = memories()
    if not found:
        print(f"nothing is kept in {memory_dir()}")
    return found


def _contents(path: Path) -> str:
    """What a memory holds, in a person's words."""
    from spec_cpu.draft.memory import DamagedError, read_memory

    try:
        learnt = read_memory(path)
    except DamagedError:
        return "damaged, or of another version"
    except OSError as error:
        raise SpecCpuError(f"cannot read {path}: {error.strerror}") from None
    if learnt is None:
        return "empty"
    tokens = learnt.states.get(defaults.NGRAM, {}).get("tokens", ())
    return f"{learnt.target.name}, {len(tokens):,} tokens of text"
