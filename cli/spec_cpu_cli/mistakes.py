"""What the parser of the command line refuses, in our words."""

from __future__ import annotations

from typing import Any, get_type_hints

import typer

from spec_cpu_cli import settings

_ARGUMENTS = {"name": "the name of a model", "names": "the name of a model, or several"}


def in_words(error: Any) -> str:
    """One line on an error of the parser, with the command whose help tells more."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "spec-cpu"
    message = (
        _missing(error)
        or _wanted(error)
        or _unknown(error)
        or _left_over(error)
        or _as_the_parser_says(error)
    )
    return f"{_given_by(error)}{message} (see {command} --help)"


def _missing(error: Any) -> str | None:
    """What was left out; None for other errors."""
    param = getattr(error, "param", None)
    if type(error).__name__ != "MissingParameter" or param is None:
        return None
    if param.param_type_name == "option":
        return f"{' / '.join(param.opts)} is missing"
    return f"give {_ARGUMENTS.get(param.name, param.name)}"


def _as_the_parser_says(error: Any) -> str:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(message.split()).rstrip(".")


def _unknown(error: Any) -> str | None:
    """An option that there is not, with those that may be meant; None for other errors."""
    near = getattr(error, "possibilities", None)
    return (
        f"no such option: {error.option_name}; did you mean {' or '.join(near)}?" if near else None
    )


def _left_over(error: Any) -> str | None:
    """What was typed after all that the command takes; None for other errors."""
    listed = _as_the_parser_says(error).partition("extra argument")[2]
    context = getattr(error, "ctx", None)
    if not listed or context is None:
        return None
    words = listed.partition(" (")[2].removesuffix(")")  # after `(s)`, or nothing
    if context.info_name == "chat":
        return f"chat takes no message ({words}): type it once the chat has begun"
    if any(param.name == "prompt" for param in context.command.params):
        return f"this is beyond the prompt: {words}. Put quotes around a text of several words"
    return f"this is more than {context.info_name} takes: {words}"


def _wanted(error: Any) -> str | None:
    """What an option or an argument takes in place of what it was given; None for other errors."""
    param, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if not isinstance(error, typer.BadParameter) or param is None or context is None:
        return None
    try:
        kind = settings.in_words(settings.type_of(context.command, param))
    except (KeyError, TypeError):  # one of Typer's own
        return None
    in_file = _source(error) == "DEFAULT_MAP"
    name = settings.flag(param)[2:] if in_file else " / ".join(param.opts)
    return f"{name} takes {kind}{_limits(context.command, param)}{_given(error)}"


def _limits(command: Any, param: Any) -> str:
    hint = get_type_hints(command.callback, include_extras=True)[param.name]
    told = next((one for one in getattr(hint, "__metadata__", ()) if hasattr(one, "min")), None)
    if told is None or told.min is None:
        return ""
    return f" of at least {told.min}" if told.max is None else f" from {told.min} to {told.max}"


def _given(error: Any) -> str:
    """What was given, where the parser tells."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    return f", not {found[0]['input']!r}" if found else ""


def _given_by(error: Any) -> str:
    """Where a wrong value comes from, if not from the command line."""
    source = _source(error)
    if source == "ENVIRONMENT":
        return f"{error.param.envvar}: "
    return f"{settings.path()}: " if source == "DEFAULT_MAP" else ""


def _source(error: Any) -> str:
    """What the wrong value was given by, as the parser calls it; empty where it does not tell."""
    option, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if option is None or context is None:
        return ""
    return str(getattr(context.get_parameter_source(option.name), "name", ""))
