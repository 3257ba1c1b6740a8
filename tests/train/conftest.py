"""A tiny target that can be talked to, and what it said."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_talk import write_talker

from spec_cpu.llama.model import Model
from spec_cpu.train import generate as generating
from spec_cpu.train.generate import Plan
from spec_cpu.train.shards import ShardStore


@pytest.fixture(scope="session")
def talker_path(models: Path) -> Path:
    return write_talker(models / "talker.gguf")


@pytest.fixture(scope="session")
def talker(talker_path: Path) -> Iterator[Model]:
    with Model(talker_path) as model:
        yield model


if importlib.util.find_spec("torch") is None:  # the extra "train"
    collect_ignore = [
        "test_eagle_net.py",
        "test_export.py",
        "test_head_batches.py",
        "test_medusa_net.py",
        "test_loss.py",
        "test_training.py",
    ]


def talk(target: Model, folder: Path, shards: int, seed: int) -> ShardStore:
    """Conversations of short turns, so that there are answers in each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generating, "ANSWER", (8, 24))
        plan = Plan(shards * 16 * 64, seed=seed, sequences=16, length=64)
        return generating.generate(target, folder, plan, threads=1)


@pytest.fixture(scope="session")
def spoken(talker: Model, tmp_path_factory: pytest.TempPathFactory) -> ShardStore:
    """Three shards of 16 conversations; only to be read."""
    return talk(talker, tmp_path_factory.mktemp("spoken"), shards=3, seed=0)


@pytest.fixture(scope="session")
def unheard(talker: Model, tmp_path_factory: pytest.TempPathFactory) -> ShardStore:
    """One shard of other text; only to be read."""
    return talk(talker, tmp_path_factory.mktemp("unheard"), shards=1, seed=9)
