"""A model made here from another one of the catalogue."""

from __future__ import annotations

from pathlib import Path

from spec_cpu.cache import staging
from spec_cpu.models.catalog import Model, QuantizeSource
from spec_cpu.models.fetch.store import place
from spec_cpu.progress import Progress


def obtain(
    model: Model, source: QuantizeSource, base: Path, target: Path, report: Progress
) -> None:
    """Quantize the file `base` to `target`.

    Raises:
        UsageError: llama.cpp has no such format.
        ModelError: it could not be done.
        CatalogError: the result has another checksum than the catalogue says.
        OSError: from the disk.
    """
    from spec_cpu.llama.quantize import quantize

    report(f"quantizing {model.name}", 0, None)
    with staging(target) as folder:
        made = folder / target.name
        quantize(base, made, source.type)
        place(made, target, model, report)
