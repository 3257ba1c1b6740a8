"""What every command takes beside its own options: settings, and the names of llama.cpp."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from spec_cpu.errors import UsageError
from spec_cpu_cli import llama_flags, settings
from spec_cpu_cli.flags import with_flags
from spec_cpu_cli.terminal import print_aside

MODEL, SAMPLING, DRAFTING = "Model", "Sampling", "Guessing ahead"
CONVERSATIONS, OUTPUT, SELDOM = "Conversations", "Output", "Seldom needed"
_METAVARS = {bool: "", int: "N", float: "X", str: "TEXT", Path: "FILE"}
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")  # within a paragraph
PANELS = (
    *(None, MODEL, SAMPLING, DRAFTING, CONVERSATIONS),
    *("Server", "Limits", "Budget", "Data", "Measure more", OUTPUT, SELDOM),
)


class Command(TyperCommand):
    """A command whose options may come from elsewhere than the command line.

    Of an option called `--name`: from the environment, as SPEC_CPU_NAME; from a preset, or from the
    settings file. A flag is turned off by `--no-name`, which help does not list. An option may be
    called as llama.cpp calls it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = _LINE_END.sub(" ", self.help or "")
        for option in settings.options(self):
            option.envvar = option.envvar or settings.variable(option)
            option.show_envvar = False

    def get_params(self, ctx: Any) -> list[Any]:
        """In the order of their panels, which help shows: usual ones first."""
        return sorted(super().get_params(ctx), key=_panel)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for option in settings.options(self):
            if option.metavar is None:
                kind = settings.type_of(self, option)[-1]
                option.metavar = _METAVARS[kind]
        _name_no_type_of_flags(self, ctx)
        _use_readable_colours()
        super().format_help(ctx, formatter)

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        for option in settings.options(self):
            if names := _free(self, llama_flags.aliases(settings.flag(option))):
                action = "store_const" if option.is_flag else "store"
                action = "append" if option.multiple else action
                parser.add_option(option, names, option.name, action, option.nargs, True)
            if option.is_flag and (names := _free(self, [settings.negation(option)])):
                parser.add_option(option, names, option.name, "store_const", 1, False)
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._check_names(args)
        if ctx.resilient_parsing:
            rest: list[str] = super().parse_args(ctx, args)
            return rest
        found, fault = settings.read_if_possible(ctx)
        ctx.default_map = found.defaults(self, settings.words(ctx))
        try:
            rest = self._parsed(ctx, args)  # --help leaves here, whatever the file holds
        except typer.BadParameter:
            if fault and self._loads_models:  # what is missing may stand there
                raise fault from None
            raise
        if fault and self._loads_models:
            raise fault
        settings.give_way(ctx)
        if not ctx.params.get("quiet"):
            _say_what_is_left_out(ctx, fault)
        return rest

    def _parsed(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "ctx") and error.ctx is None:  # whose help tells more
                error.ctx = ctx
            raise
        return rest

    @property
    def _loads_models(self) -> bool:
        """Others can do their work without the settings file, and some help to mend it."""
        return any(param.name == "target" for param in self.params)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            error.args = (f"{error}{settings.said_elsewhere(ctx, with_flags(str(error)))}",)
            raise

    def _check_names(self, args: list[str]) -> None:
        """Raise UsageError, with a pointer, for a flag that only llama.cpp has."""
        is_value = False
        for arg in args:
            if arg == "--":
                return
            name = arg.partition("=")[0]
            if not is_value and name in llama_flags.POINTERS and _free(self, [name]):
                raise UsageError(llama_flags.pointer(name))
            is_value = not is_value and self._takes_value(arg)

    def _takes_value(self, name: str) -> bool:
        return any(
            name in (*option.opts, *llama_flags.aliases(settings.flag(option)))
            for option in self.params
            if option.param_type_name == "option" and not getattr(option, "is_flag", False)
        )


class Group(TyperGroup):
    """A group of commands, whose help is like theirs."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _name_no_type_of_flags(self, ctx)
        _use_readable_colours()
        super().format_help(ctx, formatter)


def _name_no_type_of_flags(command: Any, ctx: Any) -> None:
    """Also of the parser's own ones: a flag is given or not, whatever it is to a program."""
    for param in command.get_params(ctx):
        if getattr(param, "is_flag", False):
            param.metavar = ""


def _use_readable_colours() -> None:
    """Yellow, Typer's own for types, cannot be read on a light ground."""
    from typer import rich_utils

    rich_utils.STYLE_TYPES = rich_utils.STYLE_USAGE = "bold"


def _say_what_is_left_out(ctx: Any, fault: UsageError | None) -> None:
    """What a person set up, and what has no effect."""
    if fault:
        print_aside(f"note: {fault}; going on without the settings file")
    for name, near in settings.unknown_variables(ctx):
        meant = f"did you mean {near}?" if near else "spec-cpu config show lists the options"
        print_aside(f"note: {name} is no setting, and has no effect: {meant}")


def _panel(param: Any) -> int:
    name = getattr(param, "rich_help_panel", None)
    return PANELS.index(name) if name in PANELS else PANELS.index(SELDOM)


def _free(command: Command, names: list[str]) -> list[str]:
    """Those of `names` that no option of `command` has."""
    taken = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return [name for name in names if name not in taken]


def given(context: typer.Context) -> frozenset[str]:
    """The options that were typed on the command line, by the names of their parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(
        name for name, source in sources.items() if getattr(source, "name", "") == "COMMANDLINE"
    )


def use_preset(context: typer.Context, name: str | None) -> str | None:
    """For `--preset`, which is read first: what the preset says goes before the file's own."""
    if name is not None and not context.resilient_parsing:
        found, fault = settings.read_if_possible(context)
        if not fault:
            context.default_map = found.defaults(context.command, settings.words(context), name)
    return name


def _presets(context: typer.Context, incomplete: str) -> list[str]:
    found, _ = settings.read_if_possible(context)  # this is no place for messages
    return [name for name in found.presets if name.startswith(incomplete)]


Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        is_eager=True,
        callback=use_preset,
        autocompletion=_presets,
        metavar="NAME",
        help="Options kept under a name in the settings file (see spec-cpu config).",
        show_default="none",
    ),
]
