"""The state of a prompt in a file: a later run with the same beginning need not read it again.

The file: a line that says what it is, one with a digest of the rest, one of JSON that says what
made it, the tokens (int32, little-endian), and what llama.cpp keeps of them. Nobody but its owner
may read it, for it holds what was said.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from operator import eq
from pathlib import Path

import numpy as np

from spec_cpu.cache import locked, write_private
from spec_cpu.errors import UsageError
from spec_cpu.llama.context import Saved
from spec_cpu.llama.sequence import KVSequence

_KIND = b"spec-cpu prompt cache"
_MAGIC = _KIND + b", format 1\n"
_PATIENCE = 10.0  # seconds to wait for another process that saves
_TOKEN = np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class MadeBy:
    """What decides whether a state can be used.

    Attributes:
        name: of the model, for people; not what it is known by.
        fingerprint: of its file (`Model.fingerprint`).
        settings: what else the numbers in the cache depend on: llama.cpp's version, what multiplies
            weights, the types of keys and values.
    """

    name: str = field(compare=False)
    fingerprint: str
    settings: str


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What a file holds: tokens, and what the cache held of them."""

    made_by: MadeBy
    tokens: list[int]
    state: memoryview


class _DamagedError(Exception):
    """The file was a prompt cache once, or is one of another version."""


class PromptCache:
    """The state of one prompt, in a file that several processes may use.

    Adapters are part of no state: there are none. Drafts are not, either: what drafts reads the
    prompt itself, and a head has the target's last rows evaluated again.
    """

    def __init__(self, path: Path, made_by: MadeBy) -> None:
        """Use `path`, a file that may come into being.

        Raises:
            UsageError: there is no such folder, the file cannot be read, or it is something else:
                another model's, or no prompt cache. It stays as it is.
        """
        self._path = path
        self._made_by = made_by
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent} to keep a prompt cache in")
        try:
            self._held, self._notice = self._read(), ""
        except _DamagedError:
            self._held = None
            self._notice = (
                f"the prompt cache {path} is damaged, or of another version: the prompt is read "
                "again, and the file written anew"
            )

    def _read(self) -> _Prompt | None:
        try:
            if self._path.exists() and not self._path.is_file():
                raise UsageError(f"{self._path} is no file: give `prompt_cache` the name of one")
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror}") from None
        if not data:
            return None
        if not data.startswith(_KIND):
            raise UsageError(
                f"{self._path} is no prompt cache of spec-cpu: give `prompt_cache` another file"
            )
        found = _parsed(data)
        if found.made_by.fingerprint != self._made_by.fingerprint:
            raise UsageError(
                f"{self._path} is the prompt cache of another model ({found.made_by.name}), not of "
                f"this {self._made_by.name}: give `prompt_cache` another file"
            )
        return found

    def restore(self, sequence: KVSequence, tokens: Sequence[int]) -> str | None:
        """Begin the empty `sequence` with what the file holds of the beginning of `tokens`.

        Returns:
            Why that could not be used, if there is something.
        """
        held = self._held
        if held is None or not _shared(held.tokens, tokens):
            return self._notice or None
        if held.made_by != self._made_by:
            return (
                f"the prompt cache {self._path} was made with other settings "
                f"({held.made_by.settings}): the prompt is read again, and the file written anew"
            )
        state: Saved = (ctypes.c_uint8 * len(held.state)).from_buffer_copy(held.state)
        if not sequence.set_state(state, held.tokens):
            return (
                f"the {len(held.tokens):,} tokens in the prompt cache {self._path} do not fit into "
                "this context: the prompt is read again, and the file written anew"
            )
        return None

    def keep(self, sequence: KVSequence) -> str | None:
        """Write what is in the cache of `sequence`, unless the file holds it.

        Returns:
            Why it could not be written, if so. What was in the file stays then.
        """
        tokens, held, self._held = sequence.tokens, self._held, None
        if not tokens:
            return None
        if (
            held is not None
            and held.made_by == self._made_by
            and _shared(held.tokens, tokens) == len(tokens)
        ):
            return None
        label = json.dumps(asdict(self._made_by) | {"tokens": len(tokens)}).encode() + b"\n"
        parts: list[bytes | memoryview] = [label, np.array(tokens, _TOKEN).tobytes()]
        parts.append(memoryview(sequence.state()))
        try:
            with locked(self._path, "save the prompt", lambda *_: None, _PATIENCE):
                write_private(self._path, _MAGIC, _digest(parts), *parts)
        except TimeoutError:
            return f"the prompt is not kept: another process has {self._path}"
        except OSError as error:
            return f"the prompt is not kept in {self._path}: {error.strerror or error}"
        return None


def _parsed(data: bytes) -> _Prompt:
    stream = io.BytesIO(data)
    magic, digest = stream.readline(), stream.readline()
    view = memoryview(data)
    if magic != _MAGIC or digest != _digest([view[stream.tell() :]]):
        raise _DamagedError
    told = json.loads(stream.readline())
    begin = stream.tell()
    end = begin + told.pop("tokens") * _TOKEN.itemsize
    tokens = np.frombuffer(view[begin:end], _TOKEN).tolist()
    return _Prompt(MadeBy(**told), tokens, view[end:])


def _digest(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode() + b"\n"


def _shared(one: Sequence[int], two: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    return sum(1 for _ in takewhile(bool, map(eq, one, two)))
