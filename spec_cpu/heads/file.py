"""Draft heads as files, of whichever kind."""

from __future__ import annotations

from pathlib import Path

from spec_cpu.errors import ModelError
from spec_cpu.heads.container import MEDUSA, kind_of, read_label
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


def check_writes(path: Path) -> None:
    """Raise unless the GGUF at `path` can write text of its own, so far as its header tells.

    Raises:
        UsageError, ModelError: as `check_model_file`; a head, or without a vocabulary.
    """
    check_model_file(path)
    with GgufFile(path) as file:
        if kind_of(file) is not None:
            made_for = read_label(file).target.name
            raise ModelError(
                f"{path} is a draft head, which writes no text itself: give it as the draft of the "
                f"model that it was made for ({made_for})"
            )
        if file.text("tokenizer.ggml.model") == "none":
            raise ModelError(f"{path} has no vocabulary, so no text can go in or out of it")


def read_head(path: Path) -> Head:
    """Read a head's file.

    Raises:
        UsageError: no such file.
        ModelError: not a head, one of an unknown kind or a later version, damaged, or truncated.
    """
    check_model_file(path)
    with GgufFile(path) as file:
        return read_medusa(file) if kind_of(file) == MEDUSA else read_eagle(file)
