"""Ctrl-C while the program starts, and where Python ignores what is raised."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from threading import Event

import pytest
from asking import PATIENCE
from spec_cpu_cli.startup import EXIT_CODE, never_ignored

# Presses Ctrl-C when the module that the first argument names is about to be imported.
INTERRUPTED = """
import signal, sys
from spec_cpu_cli.main import main

class Finder:
    def find_spec(self, name, path, target=None):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize(
    "module", ["spec_cpu_cli.app", "typer", "spec_cpu_cli.run", "llama_cpp", "numpy", "jinja2"]
)
def test_ctrl_c_at_any_import_ends_the_program_quietly(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "run", "-m", "none.gguf", "hi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_CODE, "", "")


def test_ctrl_c_at_an_import_is_ignored_where_it_was_to_be() -> None:
    ignored = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED}"
    command = [sys.executable, "-c", ignored, "spec_cpu_cli.app", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


def test_the_entry_imports_nothing_heavy() -> None:
    code = "import sys; import spec_cpu_cli.main; print('typer' in sys.modules, len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    typer, modules = done.stdout.split()
    assert typer == "False"
    assert int(modules) < 100


def press(*_: object) -> None:
    raise KeyboardInterrupt


class Destroyed:
    __del__ = press


def in_a_destructor() -> None:
    Destroyed()


def in_a_callback_of_a_weak_reference() -> None:
    thing = Event()
    reference = weakref.ref(thing, press)
    del thing
    assert reference() is None


def in_a_callback_from_c() -> None:
    ctypes.CFUNCTYPE(None)(press)()


@pytest.mark.parametrize(
    "ignored", [in_a_destructor, in_a_callback_of_a_weak_reference, in_a_callback_from_c]
)
def test_a_ctrl_c_that_python_ignores_comes_again(ignored: Callable[[], None]) -> None:
    before = sys.unraisablehook, signal.getsignal(signal.SIGALRM)
    with never_ignored(), pytest.raises(KeyboardInterrupt):  # noqa: PT012 (the second line is it)
        ignored()
        Event().wait(PATIENCE)
    assert (sys.unraisablehook, signal.getsignal(signal.SIGALRM)) == before
