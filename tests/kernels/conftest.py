"""A cache of its own, a compiler that hands out what is there, and a model to ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from compiling import Copier

from spec_cpu.kernels.build import build


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(models: Path) -> Path:
    return tiny.write_llama(models / "build.gguf", n_vocab=320, n_embd=64, dtype="F16")


@pytest.fixture
def copier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copier]:
    """A compiler that hands out what was compiled before, and works in an empty cache."""
    real = build()
    with Copier(tmp_path, real) as made:
        monkeypatch.setenv("CXX", str(made.script))
        monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
        yield made
