"""What a caller may give for an argument: one clear line in place of an error from deep inside."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import ParamSpec, TypeVar

from spec_cpu import defaults
from spec_cpu.errors import UsageError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument takes: in words, and the test for it."""

    wanted: str
    accepts: Callable[[object], bool]

    def check(self, *, optional: bool = False, **values: object) -> None:
        """Raise UsageError for the first of `values`, by their names, that is not of this kind."""
        for name, value in values.items():
            if not (self.accepts(value) or (optional and value is None)):
                raise _refused(name, self.wanted + (" or None" if optional else ""), value)


TEXT = Kind("text (a str)", lambda value: isinstance(value, str))
FILE = Kind(
    "a name or a path (a str or a Path)",
    lambda value: isinstance(value, str | Path) and "\0" not in str(value),
)
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
WHOLE = Kind(
    "a whole number (an int)", lambda value: isinstance(value, int) and not isinstance(value, bool)
)
REAL = Kind(
    "a number (an int or a float)", lambda value: isinstance(value, float) or WHOLE.accepts(value)
)
FUNCTION = Kind("a function", callable)


def check_prompt(prompt: str, advice: str = "give some text") -> None:
    """Raise UsageError unless `prompt` is text, and not blank; `advice`: what to do then."""
    TEXT.check(prompt=prompt)
    if not prompt.strip():
        raise UsageError(f"the prompt is empty: {advice}")


def check_seed(seed: int | None) -> None:
    """Raise UsageError unless `seed` can be one, or is None."""
    WHOLE.check(optional=True, seed=seed)
    if seed is not None and seed < 0:
        raise UsageError(f"`seed` must be 0 or more, not {seed}")


def one_of(name: str, value: str, known: Collection[str]) -> None:
    """Raise UsageError unless `value` is one of the `known` ones."""
    if not TEXT.accepts(value):
        raise _refused(name, TEXT.wanted, value)
    if value not in known:
        raise UsageError(f"`{name}` must be one of {', '.join(known)}, not {value}")


def check_drafted(k: int | None) -> None:
    """Raise UsageError unless `k` tokens can be drafted a cycle, or it is None."""
    WHOLE.check(optional=True, k=k)
    if k is not None and not 0 <= k <= defaults.MAX_DRAFT_TOKENS:
        raise UsageError(f"`k` must be from 0 to {defaults.MAX_DRAFT_TOKENS}, not {k}")


def texts(name: str, value: str | Iterable[str] | None) -> list[str]:
    """Several texts; one alone may be given as it is, and none as None."""
    return [str(item) for item in _several(name, value, TEXT)]


def check_stops(stop: str | Iterable[str] | None) -> list[str]:
    """The texts that end an answer. Raises UsageError for an empty one."""
    stops = texts("stop", stop)
    if not all(stops):
        raise UsageError("`stop` must not be an empty text, which every answer begins with")
    return stops


def paths(name: str, value: str | Path | Iterable[str | Path] | None) -> list[Path]:
    """Several files, likewise."""
    return [expanded(Path(str(item))) for item in _several(name, value, FILE)]


def expanded(path: Path) -> Path:
    """`path` with the home folder in place of a `~` at its beginning."""
    return Path(os.path.expanduser(path))  # unlike Path.expanduser as it is for an unknown user


def _several(name: str, value: object, kind: Kind) -> list[object]:
    if value is None:
        return []
    if kind.accepts(value):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        items = list(value)
        if all(map(kind.accepts, items)):
            return items
    raise _refused(name, f"{kind.wanted}, or several in a list", value)


def _refused(name: str, wanted: str, value: object) -> UsageError:
    return UsageError(f"`{name}` takes {wanted}, not {reprlib.repr(value)}")


def with_arguments_of(
    other: Callable[Arguments, object],
) -> Callable[[Callable[..., Result]], Callable[Arguments, Result]]:
    """A function that hands all of its arguments on to `other` shows them as its own."""

    def shown(function: Callable[..., Result]) -> Callable[Arguments, Result]:
        returned = signature(function).return_annotation
        theirs = signature(other).replace(return_annotation=returned)
        function.__signature__ = theirs  # type: ignore[attr-defined]
        return function

    return shown
