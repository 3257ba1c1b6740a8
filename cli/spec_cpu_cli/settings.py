"""Settings: what options are where the command line does not say.

From the strongest: the command line, the environment (SPEC_CPU_NAME), a preset, the file, the
option's own default. The file is TOML: options by their names, tables for single commands, and
tables of presets.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from spec_cpu.arguments import expanded
from spec_cpu.errors import UsageError

_PREFIX = "SPEC_CPU_"
VARIABLE = f"{_PREFIX}CONFIG"
_OF_NO_OPTION = {f"{_PREFIX}CACHE", f"{_PREFIX}DATA", f"{_PREFIX}KERNELS"}  # see `spec_cpu.cache`
_FILE_NAME = "config.toml"
_PRESETS = "presets"
_NO_SETTINGS = {"help", "version", "prompt", "file", "continue"}  # of one call alone
_MODELS = {"target", "draft", "pair"}  # options whose values are names of models
_RANKS = {"COMMANDLINE": 3, "ENVIRONMENT": 2, "DEFAULT_MAP": 1, "DEFAULT": 0}

Values = dict[str, Any]
"""Of options, by their names as parameters (`max_tokens`)."""


def options(command: Any) -> list[Any]:
    """The options of a command that settings may give."""
    return [
        param
        for param in command.params
        if param.param_type_name == "option" and flag(param)[2:] not in _NO_SETTINGS
    ]


def flag(option: Any) -> str:
    """What it is called first: `--max-tokens`."""
    return str(next(name for name in option.opts if name.startswith("--")))


def variable(option: Any) -> str:
    """The variable of the environment that gives it."""
    return f"{_PREFIX}{flag(option)[2:].replace('-', '_').upper()}"


def negation(option: Any) -> str:
    """What turns a flag off."""
    name = flag(option)[2:]
    return f"--{name.removeprefix('no-')}" if name.startswith("no-") else f"--no-{name}"


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below `group`, with the words that call it."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*above, word))
        else:
            yield (*above, word), command


def path() -> Path:
    """The settings file; it need not exist."""
    if chosen := os.environ.get(VARIABLE):
        return expanded(Path(chosen))
    from platformdirs import user_config_path

    return user_config_path("spec-cpu") / _FILE_NAME


@dataclass(frozen=True, slots=True)
class Section:
    """Values that the file gives to the commands of a group, or to one command."""

    values: Mapping[str, Any]
    below: Mapping[str, Section] = field(default_factory=dict)

    def values_for(self, command: Any, words: Sequence[str]) -> Values:
        """What it says of the options of `command`, which `words` call within it."""
        found = _by_parameter(command, self.values)
        if words and words[0] in self.below:
            found = layered(found, self.below[words[0]].values_for(command, words[1:]))
        return found


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says."""

    file: Path
    all: Section
    presets: Mapping[str, Section]

    def preset(self, name: str) -> Section:
        """Raise UsageError if there is none that is called so."""
        if name not in self.presets:
            there = ", ".join(self.presets) or "none"
            raise UsageError(f"no preset is called {name!r} in {self.file}; there are: {there}")
        return self.presets[name]

    def defaults(self, command: Any, words: Sequence[str], preset: str | None = None) -> Values:
        """What it says of the options of `command`, which `words` call.

        Raises:
            UsageError: there is no such preset.
        """
        found = self.all.values_for(command, words)
        return (
            found if preset is None else layered(found, self.preset(preset).values_for(command, ()))
        )


def layered(weak: Values, strong: Values) -> Values:
    """`strong` before `weak`, which keeps nothing that contradicts it."""
    against = {rival for name, value in strong.items() for rival in _rivals(name, value)}
    return {name: value for name, value in weak.items() if name not in against} | strong


def _rivals(name: str, value: Any) -> tuple[str, ...]:
    """Options that make no sense beside this one, unless both are meant."""
    if name == "target":
        return ("pair", "draft")
    if name == "pair":
        return ("target", "draft")
    if name == "draft" and value == "none":
        return ("lookup", "memory", "draft_tokens")
    if name == "draft" and "ngram" not in str(value).split(","):
        return ("lookup", "memory")
    if name in ("raw", "system") and value:
        return ("system",) if name == "raw" else ("raw",)
    return ()


def give_way(context: Any) -> None:
    """Let options give way to those that were given more strongly, and that contradict them.

    A `pair` of the settings file gives way to the `--target` of the command line, say.
    """

    def rank(name: str) -> int:
        return _RANKS.get(getattr(context.get_parameter_source(name), "name", ""), 0)

    for name, value in list(context.params.items()):
        for rival in _rivals(name, value):
            if 0 < rank(rival) < rank(name):
                option = next(param for param in context.command.params if param.name == rival)
                context.params[rival] = option.default


def said_elsewhere(context: Any, message: str) -> str:
    """Where the options that `message` names were given, if not on the command line."""
    named = {option.name: option for option in options(context.command)}
    places = []
    for name, option in named.items():
        if not (_names(message, flag(option)) or _names_model(message, context.params, name)):
            continue
        source = getattr(context.get_parameter_source(name), "name", None)
        if source in ("ENVIRONMENT", "DEFAULT_MAP"):
            place = option.envvar if source == "ENVIRONMENT" else path()
            places.append(f"{flag(option)} is set in {place}")
    return f" ({', '.join(places)})" if places else ""


def _names_model(message: str, values: Values, option: str) -> bool:
    """Does `message` name the model, or one of several, that `option` was given?"""
    models = str(values[option]).split(",") if option in _MODELS and values[option] else []
    return any(_names(message, model) for model in models)


def _names(message: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", message) is not None


def words(context: Any) -> list[str]:
    """What calls the command of `context`, without the name of the program."""
    above = [] if context.parent is None else [*words(context.parent), context.info_name]
    return [word for word in above if word]


def read(context: Any) -> Settings:
    """The settings file, checked against all options that there are; none: as if it were empty.

    Raises:
        UsageError: it cannot be read, is not TOML, or has a key or a value that makes no sense. One
            line that names the file and the key.
    """
    file = path()
    table = _load(file)
    presets = table.pop(_PRESETS, {})
    if not isinstance(presets, dict):
        raise _error(file, _PRESETS, "holds tables: [presets.NAME]")
    reader = _Reader(file)
    root = context.find_root().command
    read = {name: reader.preset(name, preset, root) for name, preset in presets.items()}
    return Settings(file, reader.section("", table, root), read)


def read_if_possible(context: Any) -> tuple[Settings, UsageError | None]:
    """The settings file, as if it were empty where `read` raises what is returned beside it."""
    try:
        return read(context), None
    except UsageError as fault:
        return Settings(path(), Section({}), {}), fault


def unknown_variables(context: Any) -> Iterator[tuple[str, str | None]]:
    """Variables of the environment that are called like settings and are none.

    Each with the nearest name of one, if there is one near.
    """
    named = sorted(name for name in os.environ if name.startswith(_PREFIX))
    if not named:
        return
    known = {VARIABLE, *_OF_NO_OPTION}
    for _, command in commands(context.find_root().command):
        known |= {option.envvar for option in options(command)}
    ends = [one.removeprefix(_PREFIX) for one in known]
    for name in named:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name.removeprefix(_PREFIX), ends, n=1)
            yield name, f"{_PREFIX}{near[0]}" if near else None


def _load(file: Path) -> Values:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        found: Values = toml.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get(VARIABLE):
            raise UsageError(f"{VARIABLE} names {file}, but there is no such file") from None
        return {}
    except OSError as error:
        raise UsageError(f"cannot read the settings {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from None
    return found


def _error(file: Path, where: str, problem: str) -> UsageError:
    return UsageError(f"{file}: {where}: {problem}")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes sections of the tables of `file`."""

    file: Path

    def section(self, where: str, table: Values, group: Any) -> Section:
        """The table of a command, or of a group of commands, in which they have theirs."""
        below = getattr(group, "commands", {})
        tables = {
            name: value
            for name, value in table.items()
            if name in below and isinstance(value, dict)
        }
        inner = {
            name: self.section(f"{where}{name}.", value, below[name])
            for name, value in tables.items()
        }
        values = {name: value for name, value in table.items() if name not in tables}
        known = _all(group) if below else [group]
        return Section(self._checked(where, values, known), inner)

    def preset(self, name: str, table: Any, root: Any) -> Section:
        where = f"{_PRESETS}.{name}."
        if not isinstance(table, dict):
            raise _error(self.file, where[:-1], f"is a table: [{where[:-1]}]")
        if _PRESETS[:-1] in table:
            raise _error(self.file, f"{where}preset", "a preset cannot name another one")
        return Section(self._checked(where, table, _all(root)))

    def _checked(self, where: str, values: Values, known: list[Any]) -> Values:
        """The values, as they would be typed; they fit one of the commands that have the option."""
        return {key: self._value(where + key, key, value, known) for key, value in values.items()}

    def _value(self, where: str, key: str, value: Any, known: list[Any]) -> Any:
        wanted = [
            type_of(command, option)
            for command in known
            for option in options(command)
            if is_called(option, key)
        ]
        if not wanted and key in _NO_SETTINGS:
            raise _error(self.file, where, "is no setting: give it on the command line")
        if not wanted:
            raise _error(self.file, where, f"there is no such option{_nearest(key, known)}")
        if not any(_fits(value, types) for types in wanted):
            raise _error(self.file, where, f"takes {in_words(wanted[0])}, not {value!r}")
        return value if isinstance(value, bool) else _typed(value)


def _all(group: Any) -> list[Any]:
    return [command for _, command in commands(group)]


_TYPES: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (int, float, str),  # what lists numbers is text to us
    Path: (str,),
}
_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_IN_WORDS |= {Path: "a file's name, in quotes"}


def in_words(wanted: tuple[type, ...]) -> str:
    """What an option of such a type takes."""
    return _IN_WORDS[wanted[-1]] + (", or several in a list" if list in wanted else "")


def type_of(command: Any, option: Any) -> tuple[type, ...]:
    """The type of an option or argument, after `list` if there may be several values."""
    hint = get_type_hints(command.callback)[option.name]
    of_option = next((one for one in get_args(hint) if one is not NoneType), hint)
    several = get_origin(of_option) is list
    return (list, get_args(of_option)[0]) if several else (of_option,)


def _fits(value: Any, wanted: tuple[type, ...]) -> bool:
    values = value if isinstance(value, list) and list in wanted else [value]
    accepted = _TYPES[wanted[-1]]
    return all(
        isinstance(one, accepted) and (isinstance(one, bool) == (accepted == (bool,)))
        for one in values
    )


def _typed(value: Any) -> Any:
    """A value of the file as it would be typed."""
    return [str(one) for one in value] if isinstance(value, list) else str(value)


def is_called(option: Any, key: str) -> bool:
    return f"--{key.replace('_', '-')}" in option.opts


def _by_parameter(command: Any, values: Mapping[str, Any]) -> Values:
    """Those of `values` that `command` has an option for."""
    found = {}
    for key, value in values.items():
        for option in options(command):
            if is_called(option, key):
                several = option.multiple and not isinstance(value, list)
                found[option.name] = [value] if several else value
    return found


def _nearest(key: str, known: list[Any]) -> str:
    from difflib import get_close_matches

    names = {flag(option)[2:] for command in known for option in options(command)}
    near = get_close_matches(key.replace("_", "-"), names, n=1)
    return f"; did you mean {near[0]}?" if near else " (spec-cpu config show lists them)"
