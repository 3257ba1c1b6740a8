"""Shards on disk: complete or not there, and never mixed with those of other data."""

from __future__ import annotations

import errno
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.train.shards import Manifest, Shard, ShardStore

MANIFEST = Manifest("t.gguf", "0" * 16, n_embd=4, sequences=2, length=3, top=2, seed=0)


def shard(seed: int = 0) -> Shard:
    rng = np.random.default_rng(seed)
    return Shard(
        tokens=rng.integers(0, 9, (2, 3)).astype(np.int32),
        features=rng.standard_normal((2, 3, 4)).astype(np.float16),
        top_tokens=rng.integers(0, 9, (2, 3, 2)).astype(np.int32),
        top_logprobs=-rng.random((2, 3, 2)).astype(np.float16),
        roles=rng.integers(0, 3, (2, 3)).astype(np.uint8),
    )


@pytest.fixture
def store(tmp_path: Path) -> ShardStore:
    made = ShardStore(tmp_path / "data")
    made.begin(MANIFEST)
    return made


def test_what_is_written_is_read(store: ShardStore) -> None:
    for number in range(2):
        store.write(number, shard(number))
    assert len(store) == 2
    for number, read in enumerate(store):
        for field in fields(Shard):
            mine, its = getattr(shard(number), field.name), getattr(read, field.name)
            assert mine.dtype == its.dtype
            np.testing.assert_array_equal(mine, its)


def test_a_folder_goes_on_with_the_same_data_only(store: ShardStore) -> None:
    store.begin(MANIFEST)
    for changed in ({"fingerprint": "1" * 16}, {"seed": 1}, {"prompts": "abc"}, {"n_embd": 8}):
        with pytest.raises(UsageError, match="holds data of another target, seed or prompts"):
            store.begin(replace(MANIFEST, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_loses_no_finished_shard(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    store.write(0, shard())

    def fail(file: object, **_arrays: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(error, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(SpecCpuError, match=r"No space left.*finished shards are kept"):
        store.write(1, shard(1))
    assert len(store) == 1
    np.testing.assert_array_equal(store.read(0).tokens, shard().tokens)
    assert sorted(file.name for file in store.folder.iterdir()) == ["data.json", "shard-00000.npz"]


def test_an_unfinished_shard_is_not_there(store: ShardStore) -> None:
    store.write(0, shard())
    (store.folder / "shard-00001.part").write_bytes(b"half")
    assert len(store) == 1


def test_a_damaged_shard_is_named(store: ShardStore) -> None:
    store.write(0, shard())
    file = store.folder / "shard-00000.npz"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UsageError, match=r"shard-00000.npz is damaged"):
        store.read(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "holds no data"), *((text, "is damaged: delete") for text in ("{", "{}", "[]"))],
)
def test_a_folder_without_data_says_so(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "data.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        ShardStore(tmp_path).manifest()


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecCpuError, match="cannot write to"):
        ShardStore(tmp_path / "file" / "data").begin(MANIFEST)
