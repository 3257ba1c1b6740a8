"""`spec-cpu config`: which settings are in force, and where each comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from spec_cpu.errors import UsageError
from spec_cpu_cli import settings
from spec_cpu_cli.command import Preset
from spec_cpu_cli.options import AsJson, help_alone
from spec_cpu_cli.terminal import print_table, print_text, table_console

app = typer.Typer(
    help="Settings: which are in force, and where they come from.",
    invoke_without_command=True,
    callback=help_alone,
)


_SECRETS = ("--api-key",)


@dataclass(slots=True)
class _Setting:
    """An option with one value for some commands; `origin` says where the value comes from."""

    option: str
    value: str
    origin: str
    commands: list[str] = field(default_factory=list)


@app.command()
def show(
    context: typer.Context,
    command: Annotated[
        str | None,
        typer.Argument(help="A command, such as run: its options alone.", show_default="all"),
    ] = None,
    preset: Preset = None,
    as_json: AsJson = False,
) -> None:
    """Show what every option is, and where that comes from: the variable, the preset, the file."""
    found, _ = settings.read_if_possible(context)  # what is wrong with it was said
    shown = _settings(found, context.find_root().command, preset, command)
    if as_json:
        print(json.dumps([asdict(setting) for setting in shown], indent=2))
        return
    _print(shown)
    there = "" if found.file.exists() else " (not there yet)"
    print_text(f"\nsettings file: {found.file}{there}")
    print_text(f"presets: {', '.join(found.presets) or 'none'}")


@app.command("path")
def show_path() -> None:
    """Print where the settings file is, or would be."""
    print(settings.path())


def _settings(
    found: settings.Settings, root: Any, preset: str | None, only: str | None
) -> list[_Setting]:
    """Each option's values, one entry for all commands that have it alike."""
    alike: dict[tuple[str, str, str], _Setting] = {}
    chosen = [one for one in settings.commands(root) if only in (None, " ".join(one[0]), one[0][0])]
    if not chosen:
        raise UsageError(f"there is no command {only} (see spec-cpu --help)")
    for words, command in chosen:
        for option, value, origin in _in_force(found, command, words, preset):
            key = (settings.flag(option)[2:], value, origin)
            alike.setdefault(key, _Setting(*key)).commands.append(" ".join(words))
    names = list(dict.fromkeys(name for name, _, _ in alike))
    return sorted(alike.values(), key=lambda setting: names.index(setting.option))


def _in_force(
    found: settings.Settings, command: Any, words: tuple[str, ...], preset: str | None
) -> Iterator[tuple[Any, str, str]]:
    """The options of a command, with their values and where those come from."""
    known = settings.options(command)
    layers = {str(found.file): found.all.values_for(command, words)}
    if preset is not None:
        layers[f"preset {preset}"] = found.preset(preset).values_for(command, ())
    given = {option.name: os.environ.get(option.envvar) for option in known}
    variables = {name: value for name, value in given.items() if value}
    values, origins = settings.Values(), dict[str, str]()
    for origin, layer in layers.items():
        values = settings.layered(values, layer)
        origins |= dict.fromkeys(layer, origin)
    values = settings.layered(values, variables)
    for option in known:
        elsewhere = (variables.get(option.name), values.get(option.name))
        if option.name == "preset" and preset not in (None, *elsewhere):
            yield option, preset, "the command line"
        elif option.name in variables:
            yield option, _shown(option, variables[option.name]), option.envvar
        elif option.name in values:
            yield option, _shown(option, values[option.name]), origins[option.name]
        else:
            yield option, _default(option), "default"


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.required:
        return "must be given"
    return "none" if option.default in (None, (), []) else _text(option.default)


def _shown(option: Any, value: Any) -> str:
    """A value as it may be shown to whoever looks over a shoulder."""
    return "(not shown)" if settings.flag(option) in _SECRETS else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print(shown: list[_Setting]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("option", "value", "from", ""):
        table.add_column(name, overflow="fold")
    table.columns[0].no_wrap = True
    several = {one.option for one in shown for two in shown if _differ(one, two)}
    for setting in shown:
        whose = ", ".join(setting.commands) if setting.option in several else ""
        table.add_row(setting.option, setting.value, setting.origin, whose)
    print_table(table_console(), table, spare=("", "from"))


def _differ(one: _Setting, two: _Setting) -> bool:
    return one.option == two.option and one is not two
