"""Draft heads as files, of whichever kind."""

from __future__ import annotations

from pathlib import Path

from spec_cpu.heads.container import MEDUSA, kind_of
from spec_cpu.heads.eagle import EagleHead, read_eagle
from spec_cpu.heads.medusa import MedusaHead, read_medusa
from spec_cpu.llama.gguf import check_model_file
from spec_cpu.llama.tensors import GgufFile

Head = EagleHead | MedusaHead


def is_head(path: Path) -> bool:
    """Is the GGUF at `path` a head? Errors: `check_model_file`."""
    check_model_file(path)
    with GgufFile(path) as file:
        return kind_of(file) is not None


def read_head(path: Path) -> Head:
    """Read a head's file.

    Raises:
        UsageError: no such file.
        ModelError: not a head, one of an unknown kind or a later version, damaged, or truncated.
    """
    check_model_file(path)
    with GgufFile(path) as file:
        return read_medusa(file) if kind_of(file) == MEDUSA else read_eagle(file)
