"""PNG files through matplotlib, which only the extra `plot` installs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spec_cpu.errors import SpecCpuError, UsageError


def check_matplotlib() -> None:
    """Raise UsageError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError(
            '--plot needs matplotlib: pip install ".[plot]", in spec-cpu\'s folder'
        ) from None


def check_file(path: Path) -> None:
    """Find out, before anything is measured, whether `figure` can write `path`.

    Raises:
        UsageError: matplotlib is not installed, or `path` is no name of a PNG.
        SpecCpuError: its folder cannot be written to.
    """
    if path.suffix.lower() != ".png" or path.is_dir():
        raise UsageError(f"--plot writes a PNG: give a name that ends in .png, not {path}")
    check_matplotlib()
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raise SpecCpuError if no file can be written in `folder`."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SpecCpuError(f"cannot write to {folder}: {error.strerror}") from None


@contextmanager
def figure(path: Path, panels: int = 1) -> Iterator[Any]:
    """The axes of a figure of `panels` side by side; written to `path` at the end.

    Raises:
        SpecCpuError: it cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(1, panels, figsize=(5.5 * panels, 4), layout="constrained")
    yield axes
    try:
        drawing.savefig(path, dpi=120)
    except OSError as error:
        raise SpecCpuError(f"cannot write {path}: {error.strerror}") from None
    finally:
        pyplot.close(drawing)
