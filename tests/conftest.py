"""Models for the tests: the real default model, and tiny random ones made on the spot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny

from spec_cpu.llama.model import Model
from spec_cpu.models.fetch import resolve

# Tests ask for the kernels that they mean; and timing every tiny model both ways takes its time.
os.environ["SPEC_CPU_KERNELS"] = "off"

# What tests share and check with: its failures say what was compared, as those of tests do.
pytest.register_assert_rewrite("calling")


@pytest.fixture(scope="session")
def default_path() -> Path:
    """The embedded default target, SmolLM2-135M-Instruct in Q4_1; fetched on first use."""
    return resolve("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def q4_0_path() -> Path:
    """The same model in Q4_0: the default draft, and a target that is exact to the bit."""
    return resolve("smollm2-135m-instruct-q4_0")


@pytest.fixture(scope="session")
def default_target(default_path: Path) -> Iterator[Model]:
    with Model(default_path) as model:
        yield model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for tiny models that tests share."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny_target(models: Path) -> Path:
    """A tiny model that can read any text."""
    return tiny.write_llama(models / "target.gguf", n_vocab=320, n_ctx=2048, scale=3)


@pytest.fixture(scope="session")
def tiny_draft(models: Path) -> Path:
    """A relative of `tiny_target`: it often guesses right."""
    return tiny.write_llama(models / "draft.gguf", n_vocab=320, n_ctx=2048, scale=3, noise=0.15)


@pytest.fixture(scope="session")
def target(models: Path) -> Path:
    """A target to write heads for."""
    return tiny.write_llama(models / "headless.gguf", n_vocab=32, n_embd=64)
