"""A target for the heads of the tests to draft for."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny


@pytest.fixture(scope="session")
def small_target(models: Path) -> Path:
    """A tiny model with 32 tokens, for a head that knows all or some of them."""
    return tiny.write_llama(models / "small-target.gguf", n_vocab=32, scale=2, n_ctx=512)
