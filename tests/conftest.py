"""Models for the tests: the real default model, and tiny random ones made on the spot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spec_cpu.fetch import resolve
from spec_cpu.llama.model import Model


@pytest.fixture(scope="session")
def default_path() -> Path:
    """The embedded default target, SmolLM2-135M-Instruct in Q4_1; fetched on first use."""
    return resolve("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def q4_0_path() -> Path:
    """The same model in Q4_0: the default draft, and the target that is exact to the bit."""
    return resolve("smollm2-135m-instruct-q4_0")


@pytest.fixture(scope="session")
def default_target(default_path: Path) -> Iterator[Model]:
    with Model(default_path) as model:
        yield model
