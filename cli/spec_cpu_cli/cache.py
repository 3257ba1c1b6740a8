"""`spec-cpu cache`: what spec-cpu keeps on this machine, and getting rid of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Annotated

import typer

from spec_cpu.cache import cache_dir, data_dir, size
from spec_cpu.errors import UsageError
from spec_cpu_cli.options import help_alone
from spec_cpu_cli.removal import Yes, confirm, removing
from spec_cpu_cli.sizes import size_text
from spec_cpu_cli.terminal import print_text

app = typer.Typer(
    help="What spec-cpu keeps on this machine: show, clear.",
    invoke_without_command=True,
    callback=help_alone,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Some of what is kept: files and folders, and how they are removed."""

    name: str
    holds: str
    paths: list[Path]
    remove: Callable[[], None]

    @property
    def bytes(self) -> int:
        return sum(size(path) for path in self.paths)


NAMES = ("models", "quantized", "kernels", "costs", "memory", "notices")


def _what(incomplete: str) -> list[str]:
    return [name for name in NAMES if name.startswith(incomplete)]


@app.command()
def show(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with every path.")
    ] = False,
) -> None:
    """Say what is kept, where, and how large it is."""
    parts = _parts()
    if as_json:
        found = {part.name: {"bytes": part.bytes, "paths": part.paths} for part in parts}
        folders = {"folder": cache_dir(), "hub": _hub_folder(), "conversations": data_dir()}
        record = {**folders, "parts": found}
        print(json.dumps(record, indent=2, default=str))
        return
    print_text(f"{cache_dir()} (SPEC_CPU_CACHE names another folder)\n")
    for part in parts:
        print_text(f"{part.name:<9} {size_text(part.bytes):>9}  {part.holds}")
    print_text(f"{'in all':<9} {size_text(sum(part.bytes for part in parts)):>9}\n")
    print_text(f"Models of the hub are in its own folder, {_hub_folder()}:")
    print_text("`spec-cpu models list` says which are here, `spec-cpu models rm NAME` removes one.")
    print_text(f"Conversations that you keep, and what you typed in chat, are in {data_dir()}:")
    print_text("`spec-cpu logs show` shows the former, `spec-cpu logs clear` removes both.")


@app.command()
def clear(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"What to remove: {', '.join(NAMES)}.",
            show_default="all of it",
            autocompletion=_what,
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove what is kept.

    Models are fetched, kernels compiled and costs measured again when they are needed; earlier
    texts are gone.
    """
    for name in what or ():
        if name not in NAMES:
            raise UsageError(f"nothing called {name!r} is kept: there are {', '.join(NAMES)}")
    parts = [part for part in _parts() if part.paths and (not what or part.name in what)]
    if not parts:
        print("nothing is kept")
        return
    if not yes:
        _ask(parts)
    for part in parts:
        part.remove()
        print(f"removed {part.name}")


def _parts() -> list[Part]:
    from spec_cpu.draft.memory import clear_memory, memories

    folder = cache_dir()
    kernels, notices = _in(folder / "kernels"), _in(folder / "notices")
    costs = _in(folder / "costs") + _in(folder / "records")
    return [
        *_model_parts(),
        Part("kernels", "code compiled for this machine", kernels, _each(_delete, kernels)),
        Part("costs", "how long steps take here", costs, _each(_delete, costs)),
        Part(
            "memory",
            "earlier texts to guess from (spec-cpu memory show)",
            texts := memories(),
            _each(clear_memory, texts),
        ),
        Part("notices", "when a notice was shown last", notices, _each(_delete, notices)),
    ]


def _model_parts() -> tuple[Part, Part]:
    """Models that were fetched, and those that were made here of them."""
    from spec_cpu.models.catalog import QuantizeSource, load_catalog
    from spec_cpu.models.fetch import remove_file
    from spec_cpu.models.fetch.store import cache_path, cached_files

    models = load_catalog().models.values()
    made = {cache_path(one) for one in models if isinstance(one.source, QuantizeSource)}
    found = cached_files()

    def part(name: str, how: str, files: list[Path]) -> Part:
        paths = [path for file in files for path in found[file]]
        names = ", ".join(file.stem.rpartition("-")[0] for file in files) or "none"
        return Part(name, f"{how}: {names}", paths, _each(remove_file, files))

    return (
        part("models", "fetched", [file for file in found if file not in made]),
        part("quantized", "made here from those", [file for file in found if file in made]),
    )


def _each(remove: Callable[[Path], None], paths: Iterable[Path]) -> Callable[[], None]:
    """To remove all `paths` by `remove`."""

    def remove_all() -> None:
        for path in paths:
            with removing(path, "writing"):
                remove(path)

    return remove_all


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _hub_folder() -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    return HF_HUB_CACHE


def _ask(parts: Sequence[Part]) -> None:
    """Go on only if a person says so."""
    named = ", ".join(f"{part.name} ({size_text(part.bytes)})" for part in parts)
    confirm(f"Remove {named} from {cache_dir()}?")


def _delete(path: Path) -> None:
    if path.is_dir():
        rmtree(path)
    else:
        path.unlink(missing_ok=True)
