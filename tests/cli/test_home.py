"""Paths that begin with `~`, where no shell expanded it: every option that takes a path does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from spec_cpu_cli.app import app
from spec_cpu_cli.options import home


def functions() -> Iterator[Callable[..., Any]]:
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    for group in groups:
        for command in group.registered_commands if group else ():
            assert command.callback is not None
            yield command.callback


def path_options() -> Iterator[tuple[str, Any]]:
    """The option of each parameter that is a path, or several, and what it is called."""
    for function in functions():
        for name, hint in get_type_hints(function, include_extras=True).items():
            if get_origin(hint) is Annotated and "Path" in str(get_args(hint)[0]):
                yield f"{function.__name__} {name}", get_args(hint)[1]


OPTIONS = dict(path_options())


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(name: str) -> None:
    assert OPTIONS[name].callback is home


def test_what_it_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {"run file", "run lookup", "chat lookup", "train out", "bench out"} <= set(OPTIONS)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home(Path("~/a")) == tmp_path / "a"
    assert home([Path("~/a"), Path("b~")]) == [tmp_path / "a", Path("b~")]
    assert home(None) is None
