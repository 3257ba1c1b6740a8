"""PNG files through matplotlib, which only the extra `plot` installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spec_cpu.errors import SpecCpuError, UsageError


@contextmanager
def figure(path: Path, panels: int) -> Iterator[Any]:
    """The axes of a figure of `panels` side by side; written to `path` at the end.

    Raises:
        UsageError: matplotlib is not installed, or `path` is no PNG.
        SpecCpuError: it cannot be written.
    """
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot writes a PNG: give a name that ends in .png, not {path}")
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise UsageError('--plot needs matplotlib: pip install "spec-cpu[plot]"') from None
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
