"""What a head learns from, on disk: a folder of shards, each complete or not there."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spec_cpu.cache import replacing, write_text
from spec_cpu.errors import SpecCpuError, UsageError

_MANIFEST = "data.json"
_NUMBERS = ("n_embd", "sequences", "length", "top", "seed")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What all shards of a folder have in common.

    Attributes:
        target, fingerprint: whose text it is.
        n_embd: the width of a feature.
        sequences, length: conversations in a shard, and tokens in each.
        top: the likeliest tokens that are kept of each distribution.
        seed: shard i was made from (seed, i).
        prompts: a digest of the prompts that were given; empty if the target made up its own.
    """

    target: str
    fingerprint: str
    n_embd: int
    sequences: int
    length: int
    top: int
    seed: int
    prompts: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """Conversations of a target: S of them, T tokens each.

    Attributes:
        tokens: (S, T) int32.
        features: (S, T, n_embd) float16: the target's final hidden state, after the last norm, at
            each token.
        top_tokens: (S, T, K) int32: the K likeliest to follow each token, likeliest first.
        top_logprobs: (S, T, K) float16: the natural logarithm of their chance at temperature 1.
        roles: (S, T) uint8: whose the token is (`script.GIVEN`, `USER` or `ASSISTANT`).
    """

    tokens: NDArray[np.int32]
    features: NDArray[np.float16]
    top_tokens: NDArray[np.int32]
    top_logprobs: NDArray[np.float16]
    roles: NDArray[np.uint8]


class ShardStore:
    """A folder of shards, numbered from 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def begun(self) -> bool:
        """Is it known what it is to hold?"""
        return (self.folder / _MANIFEST).exists()

    def begin(self, manifest: Manifest) -> None:
        """Make the folder, or go on with it.

        Raises:
            UsageError: it holds other data.
            SpecCpuError: it cannot be written.
        """
        file = self.folder / _MANIFEST
        if self.begun:
            if self.manifest() != manifest:
                raise UsageError(
                    f"{self.folder} holds data of another target, seed or prompts, or by another "
                    "spec-cpu: give another folder, or the options that it was made with"
                )
            return
        try:
            write_text(file, json.dumps(asdict(manifest), indent=2))
        except OSError as error:
            raise _cannot_write(self.folder, error) from None

    def manifest(self) -> Manifest:
        """Raises UsageError: there is none, or it is damaged."""
        file = self.folder / _MANIFEST
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            if all(isinstance(record[name], int) for name in _NUMBERS):
                return Manifest(**record)
        except FileNotFoundError:
            raise UsageError(f"{self.folder} holds no data: generate some first") from None
        except (OSError, ValueError, TypeError, KeyError):
            pass
        raise UsageError(f"{file} is damaged: delete {self.folder}, and it is made again")

    def __len__(self) -> int:
        """Shards that are complete, up to the first that is not."""
        n = 0
        while self.has(n):
            n += 1
        return n

    def has(self, number: int) -> bool:
        """Is this shard complete?"""
        return self._file(number).exists()

    def write(self, number: int, shard: Shard) -> None:
        """Raises SpecCpuError: the disk is full, or cannot be written. Other shards stay."""
        try:
            with replacing(self._file(number)) as part, part.open("wb") as file:
                np.savez(
                    file,
                    tokens=shard.tokens,
                    features=shard.features,
                    top_tokens=shard.top_tokens,
                    top_logprobs=shard.top_logprobs,
                    roles=shard.roles,
                )
        except OSError as error:
            raise _cannot_write(self.folder, error) from None

    def read(self, number: int) -> Shard:
        """Raises UsageError: the file is damaged."""
        path = self._file(number)
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                shard = Shard(**arrays)
            manifest = self.manifest()
            if shard.tokens.shape == (manifest.sequences, manifest.length):
                return shard
        except FileNotFoundError:
            raise UsageError(f"{self.folder} holds no shard {number}: generate more") from None
        except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile):
            pass
        raise UsageError(f"{path} is damaged: delete it, and it is made again")

    def __iter__(self) -> Iterator[Shard]:
        return (self.read(number) for number in range(len(self)))

    def _file(self, number: int) -> Path:
        return self.folder / f"shard-{number:05}.npz"


def _cannot_write(folder: Path, error: OSError) -> SpecCpuError:
    return SpecCpuError(
        f"cannot write to {folder} ({error.strerror}): finished shards are kept; free some space "
        "and run the same command again"
    )
