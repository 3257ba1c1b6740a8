"""`spec-cpu models`: what the catalogue has, and getting it here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu.errors import CatalogError
from spec_cpu_cli import completion
from spec_cpu_cli.options import AsJson, help_alone
from spec_cpu_cli.sizes import size_text
from spec_cpu_cli.terminal import print_aside, print_table, print_text, table_console

if TYPE_CHECKING:
    from rich.table import Table

    from spec_cpu.costs.suggest import Suggestion
    from spec_cpu.models.catalog import Catalog, Model, Pair

app = typer.Typer(
    help="Models by name, and from the hub: list, suggest, show, pull, path, rm.",
    invoke_without_command=True,
    callback=help_alone,
)

_NOTE_WIDTH = 30  # columns; a narrower note is left out, and shown by `models show`
# Where a model comes from, in a person's words; other kinds of sources are their own.
_ORIGINS = {"wheel": "pip", "quantize": "quantized here"}


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models and pairs that have a name, and what else was fetched from the hub."""
    from spec_cpu.models.catalog import load_catalog, user_file

    catalog = load_catalog()
    others = _from_hub(catalog)
    if as_json:
        _print_json(
            {
                "models": [_record(model) for model in catalog.models.values()],
                "pairs": [_record(pair) for pair in catalog.pairs.values()],
                "hub": [_record(model) for model in others],
            }
        )
        return
    console = table_console()
    spare = ("from", "licence", "family", "parameters", "quantization", "size")
    print_table(console, _model_table(catalog.models.values()), spare=spare)
    console.print()
    print_table(console, _pair_table(catalog.pairs.values()), spare=("note", "draft", "target"))
    console.print()
    if others:
        print_table(console, _hub_table(others), spare=("size",))
        console.print()
    print_text(f"Your own entries: {user_file()}")


@app.command()
def suggest(
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="GB",
            help="Memory that the models may take.",
            show_default="what is free here",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which pairs of models fit into this machine's memory, and how fast they would be.

    Nothing is fetched: what is said follows from the sizes of the models and from how fast this
    machine reads its memory. spec-cpu plan measures a pair that is here.
    """
    from spec_cpu.costs.suggest import suggestions
    from spec_cpu.machine.memory_speed import memory_speed

    speed = memory_speed()
    found = suggestions(None if memory is None else memory * 1e9, speed=speed.rate)
    if speed.disturbed:
        print_aside(
            f"note: this machine was busy while its memory was timed ({speed.disturbed}), so these "
            "speeds may be far too low: ask again when it is quiet"
        )
    if as_json:
        _print_json(
            [
                {
                    "pair": one.pair,
                    "bytes": one.size,
                    "memory_bytes": one.memory,
                    "fits": one.fits,
                    "tokens_per_second": 1 / one.step,
                    "acceptance": asdict(one.acceptance),
                    "expected": [asdict(best) for best in one.plan.expected],
                }
                for one in found
            ]
        )
        return
    console = table_console()
    spare = ("memory", "alone", "download", "with guessing ahead")
    print_table(console, _suggestions_table(found), spare=spare)
    print_text("")
    for line in _advice(found):
        print(line) if line.startswith("spec-cpu ") else print_text(line)  # a command is copied


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(help="A model or a pair.", autocompletion=completion.models_and_pairs),
    ],
    as_json: AsJson = False,
) -> None:
    """Show one model or pair in full."""
    from spec_cpu.models.catalog import load_catalog
    from spec_cpu.models.fetch import repository

    if repository.is_name(name):
        record = _record(_named(name))
    else:
        record = _record(_find(load_catalog(), name))
    if as_json:
        _print_json(record)
        return
    for key, value in _lines(record):
        print(f"{key:<20} {value}")


@app.command()
def pull(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Models or pairs by name, or OWNER/NAME[:QUANT] on the hub.",
            autocompletion=completion.models_and_pairs,
        ),
    ],
) -> None:
    """Fetch models, or both models of a pair, that are not here yet."""
    from spec_cpu.models.fetch import fetch
    from spec_cpu_cli.progress import download_progress

    for model in _models_of(names):
        with download_progress() as progress:
            file = fetch(model, progress)
        print(f"{model.name}  {file}")


@app.command()
def rm(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Models by name, or OWNER/NAME[:QUANT] of the hub.",
            autocompletion=completion.models,
        ),
    ],
) -> None:
    """Remove models that were fetched or quantized here."""
    from spec_cpu.models.fetch import remove

    for model in [_named(name) for name in names]:
        remove(model)
        print(f"removed {model.name}")


@app.command()
def path(
    name: Annotated[str, typer.Argument(help="A model.", autocompletion=completion.models)],
) -> None:
    """Print the path of a model that is here; nothing is fetched."""
    from spec_cpu.models.fetch import local_path

    file = local_path(_named(name))
    if file is None:
        raise _not_here(name)
    print(file)


def _named(name: str) -> Model:
    """The model of the catalogue called `name`, or the one of the hub if that is here."""
    from spec_cpu.models.catalog import load_catalog
    from spec_cpu.models.fetch import repository

    if not repository.is_name(name):
        return load_catalog().model(name)
    found = repository.local(name)
    if found is None:
        raise _not_here(name)
    return found


def _not_here(name: str) -> CatalogError:
    return CatalogError(f"{name} is not here yet: spec-cpu models pull {name}")


def _find(catalog: Catalog, name: str) -> Model | Pair:
    from spec_cpu.models.catalog import unknown_name

    found = catalog.models.get(name) or catalog.pairs.get(name)
    if found is None:
        raise unknown_name("model or pair", name, [*catalog.models, *catalog.pairs])
    return found


def _models_of(names: Iterable[str]) -> list[Model]:
    """The models behind names of models, pairs and repositories of the hub, each once."""
    from spec_cpu.models.catalog import Pair, load_catalog
    from spec_cpu.models.fetch import repository

    catalog = load_catalog()
    wanted: dict[str, Model] = {}
    for name in names:
        if repository.is_name(name):
            wanted[name] = repository.find(name)
            continue
        found = _find(catalog, name)
        parts = (found.target, found.draft) if isinstance(found, Pair) else (name,)
        wanted |= {part: catalog.model(part) for part in parts}
    return list(wanted.values())


def _record(entry: Model | Pair) -> dict[str, Any]:
    """An entry as plain values; for a model also where it is here, or None."""
    from spec_cpu.models.catalog import Pair
    from spec_cpu.models.fetch import local_path

    record = asdict(entry)
    if isinstance(entry, Pair):
        return record
    return record | {
        "source": {"kind": entry.source.kind} | record["source"],
        "path": local_path(entry),
    }


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, default=str))  # paths become text


def _lines(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{key}.")
        else:
            yield prefix + key, "-" if value is None else str(value)


def _model_table(models: Iterable[Model]) -> Table:
    from rich.table import Table

    from spec_cpu.models.fetch import local_path

    table = Table("model", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for name in ("family", "parameters", "quantization"):
        table.add_column(name)
    table.add_column("size", justify="right", no_wrap=True)
    for name in ("licence", "from", "here"):
        table.add_column(name)
    for model in models:
        here = local_path(model)
        size = model.bytes or (here.stat().st_size if here else None)
        row = (model.name, model.family, model.parameters, model.quantization, size_text(size))
        origin = _ORIGINS.get(model.source.kind, model.source.kind)
        table.add_row(*row, model.license, origin, "yes" if here else "no")
    return table


def _from_hub(catalog: Catalog) -> list[Model]:
    """What is here of the hub beside the models of the catalogue."""
    from spec_cpu.models.fetch import repository

    named = [model.source for model in catalog.models.values()]
    return [model for model in repository.downloaded() if model.source not in named]


def _bytes(model: Model) -> int | None:
    """The size of all parts of a model of the hub that is here."""
    from spec_cpu.models.catalog import HubSource
    from spec_cpu.models.fetch import local_path

    first = local_path(model)
    if first is None or not isinstance(model.source, HubSource):
        return None
    return sum((first.parent / PurePath(file).name).stat().st_size for file in model.source.files)


def _hub_table(models: Iterable[Model]) -> Table:
    from rich.table import Table

    table = Table("from the hub", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    table.add_column("size", justify="right", no_wrap=True)
    for model in models:
        table.add_row(model.name, size_text(_bytes(model)))
    return table


def _suggestions_table(found: Sequence[Suggestion]) -> Table:
    from rich.table import Table

    table = Table("pair", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in ("download", "memory", "alone", "with guessing ahead"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in found:
        low, likely, high = (best.speedup / one.step for best in one.plan.expected)
        expected = f"{likely:.1f} ({low:.1f} to {high:.1f}) tok/s"
        row = (one.pair, size_text(one.size), size_text(one.memory), f"{1 / one.step:.1f} tok/s")
        table.add_row(
            *row, expected if one.fits else "does not fit", style=None if one.fits else "dim"
        )
    return table


def _advice(found: Sequence[Suggestion]) -> Iterator[str]:
    """What the numbers rest on, and the command for the first pair."""
    if not found or not found[0].fits:
        yield "No pair of the catalogue fits into this memory. A smaller model of your own may:"
        yield "spec-cpu run --target FILE.gguf"
        return
    rates = found[0].acceptance
    yield (
        f"Estimates from sizes, where {rates.low:.0%} to {rates.high:.0%} of the guesses are "
        "accepted. More are where an answer repeats its prompt. Memory: while it loads."
    )
    yield "The largest that fits (spec-cpu plan --pair NAME measures it):"
    yield f'spec-cpu run --pair {found[0].pair} "Why is the sky blue?"'


def _pair_table(pairs: Iterable[Pair]) -> Table:
    from rich.table import Table

    table = Table("pair", "target", "draft", "note", box=None, pad_edge=False)
    for column in table.columns[:3]:
        column.no_wrap = True
    table.columns[3].min_width = _NOTE_WIDTH
    for pair in pairs:
        table.add_row(pair.name, pair.target, pair.draft, pair.note)
    return table
