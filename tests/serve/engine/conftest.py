"""A target that gives the same to the bit whatever is in a pass beside, and what drafts for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from tiny_head import write_head
from tiny_medusa import write_heads


@pytest.fixture(scope="session")
def files(models: Path) -> dict[str, Path]:
    """The target, and drafts by their kinds."""
    target = tiny.write_llama(models / "served.gguf", n_vocab=32, scale=3, dtype="Q4_0")
    return {
        "target": target,
        "model": tiny.write_llama(models / "serving.gguf", n_vocab=32, scale=3, noise=0.3),
        "eagle": write_head(models / "eagle.gguf", target, noise=0.3),
        "medusa": write_heads(models / "medusa.gguf", target),
    }


@pytest.fixture
def target(files: dict[str, Path]) -> Path:
    return files["target"]
