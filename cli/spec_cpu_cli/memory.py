"""`spec-cpu memory`: what is kept of earlier texts to draft from, and getting rid of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from spec_cpu import defaults
from spec_cpu.errors import MemoryFileError, SpecCpuError
from spec_cpu_cli import options as opt

app = typer.Typer(
    help="What is kept of earlier texts to draft from: show, clear.",
    invoke_without_command=True,
    callback=opt.help_alone,
)

File = Annotated[
    Path | None,
    typer.Argument(
        callback=opt.home, help="One that was given to --memory.", show_default="all of the cache"
    ),
]


@app.command()
def show(file: File = None) -> None:
    """Say which memories there are, and how much they hold."""
    for path in _files(file):
        stat = path.stat()
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(stat.st_mtime))
        print(f"{path}  {stat.st_size / 1e3:,.0f} kB, written {written}: {_contents(path)}")


@app.command()
def clear(file: File = None) -> None:
    """Remove them: nothing of what was said is kept."""
    for path in _files(file):
        if file is not None:
            _contents(path)  # somebody's own file that is no memory stays
        try:
            path.unlink()
        except OSError as error:
            raise SpecCpuError(f"cannot remove {path}: {error.strerror}") from None
        print(f"removed {path}")


def _files(file: Path | None) -> list[Path]:
    """The files that are meant."""
    from spec_cpu.draft.memory import memory_dir

    if file is not None:
        if not file.exists():
            raise MemoryFileError(f"there is no memory {file}")
        return [file]
    found = sorted(path for path in memory_dir().glob("[!.]*") if path.is_file())
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
