"""What sources learnt of a target, kept in a file from one run to the next.

The file: a line that says what it is, one with a digest of the rest, one of JSON that names the
target, and the arrays of all sources as an npz. Nobody but its owner may read it, for it holds what
was said.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spec_cpu.cache import cache_dir, can_hold_files, locked, remove, write_private
from spec_cpu.errors import MemoryFileError

_MAGIC = b"spec-cpu memory, format 1\n"
PATIENCE = 10.0
"""Seconds to wait for another process that saves."""

State = Mapping[str, NDArray[Any]]
"""Arrays by their names. Integers are tokens of the target, or -1; an empty one: nothing learnt."""


@runtime_checkable
class Learner(Protocol):
    """A source that learns from the texts it follows."""

    @property
    def name(self) -> str: ...

    def state(self) -> State:
        """What it learnt, and what it was given to `restore`, if that is not out of date."""
        ...

    def restore(self, state: State) -> None:
        """Take what an earlier run learnt, in place of what was restored before.

        What this run learnt itself stays.

        Raises:
            ValueError: the arrays are not of this kind.
        """
        ...

    def forget(self) -> None:
        """Let nothing that was learnt decide what is proposed from here on."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """The model that something was learnt of.

    Attributes:
        name: what people call it; not what it is known by.
        fingerprint: of its file, which has its weights and its vocabulary (`Model.fingerprint`).
        n_vocab: its tokens.
    """

    name: str = field(compare=False)
    fingerprint: str
    n_vocab: int


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a file holds: the states of sources by their names."""

    target: MemoryTarget
    states: Mapping[str, State]


class DamagedError(Exception):
    """A file was a memory once."""


def memory_dir() -> Path:
    """The folder of the memories that have no place of their own."""
    return cache_dir() / "memory"


def memory_file(fingerprint: str) -> Path:
    """Where the memory of the target with this `Model.fingerprint` is, by default."""
    return memory_dir() / f"{fingerprint}.memory"


def read_memory(path: Path) -> Learnt | None:
    """What the file at `path` holds; None where there is none, or an empty one.

    Raises:
        OSError: it cannot be read.
        MemoryFileError: it is no memory.
        DamagedError: it is one that was damaged, or of another version.
    """
    if path.exists() and not path.is_file():
        raise MemoryFileError(f"{path} is no file: give `memory` a file")
    try:
        with path.open("rb") as file:
            start = file.readline(len(_MAGIC))
            if not start:
                return None
            if not start.startswith(_MAGIC.split(b",")[0]):
                raise MemoryFileError(
                    f"{path} is no memory of spec-cpu: give `memory` another file"
                )
            if start != _MAGIC:
                raise DamagedError
            digest, rest = file.readline(), file.read()
    except FileNotFoundError:
        return None
    if digest != _digest(rest):
        raise DamagedError
    return _parsed(rest)


def _parsed(rest: bytes) -> Learnt:
    label, _, arrays = rest.partition(b"\n")
    states: dict[str, dict[str, NDArray[Any]]] = {}
    try:
        target = MemoryTarget(**json.loads(label))
        with np.load(io.BytesIO(arrays), allow_pickle=False) as found:
            for key in found.files:
                source, _, name = key.partition(".")
                states.setdefault(source, {})[name] = _checked(found[key], target.n_vocab)
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile):
        raise DamagedError from None
    return Learnt(target, states)


def _checked(array: NDArray[Any], n_vocab: int) -> NDArray[Any]:
    """`array`, with tokens of the vocabulary if it has integers, and finite numbers otherwise."""
    if np.issubdtype(array.dtype, np.integer):
        fits = ((array >= -1) & (array < n_vocab)).all()
    else:
        fits = np.isfinite(array).all()
    if not fits:
        raise ValueError("numbers out of range")
    return array


def write_memory(path: Path, learnt: Learnt) -> None:
    """Write the file in one step, private to the user; only for the holder of the lock on `path`.

    Raises:
        OSError: it cannot be written. What was there stays.
    """
    arrays = io.BytesIO()
    named: dict[str, Any] = {
        f"{source}.{key}": array
        for source, state in learnt.states.items()
        for key, array in state.items()
    }
    np.savez(arrays, **named)
    rest = json.dumps(asdict(learnt.target)).encode() + b"\n" + arrays.getvalue()
    write_private(path, _MAGIC, _digest(rest), rest)


def clear_memory(path: Path) -> None:
    """Remove the file at `path`, and what a process that was killed while it saved left of it.

    Raises:
        OSError: it cannot be removed.
        TimeoutError: another process has been saving for too long.
    """
    remove(path, PATIENCE)


def memories() -> list[Path]:
    """The memories in the cache: also those set aside, and those of which only rests are there."""
    files = {path for path in memory_dir().glob("[!.]*") if path.is_file()}
    rests = memory_dir().glob(".*.staging")
    return sorted(
        files | {path.with_name(path.name[1:].removesuffix(".staging")) for path in rests}
    )


def _digest(rest: bytes) -> bytes:
    return hashlib.blake2b(rest, digest_size=16).hexdigest().encode() + b"\n"


class Memory:
    """The memory of one target, in a file that runs share, also at the same time.

    Who saves takes in what others saved meanwhile. So the texts of all are kept, and of what two
    learnt of the same token that of the later one.
    """

    def __init__(self, path: Path, target: MemoryTarget) -> None:
        """Keep it in `path`, a file that may come into being.

        Raises:
            MemoryFileError: there is no such folder, or a file of another kind.
        """
        self._path = Path(os.path.realpath(path))
        self._target = target
        self._in_cache = self._path.parent == Path(os.path.realpath(memory_dir()))
        if not (self._in_cache or self._path.parent.is_dir()):
            raise MemoryFileError(f"there is no folder {path.parent} to keep a memory in")

    def restore(self, sources: Iterable[object]) -> str | None:
        """Give those of `sources` that learn what the file holds for them; perhaps a notice.

        Raises:
            MemoryFileError: the file is no memory, or that of another target. It stays as it is.
        """
        learners = [source for source in sources if isinstance(source, Learner)]
        if self._in_cache and not self._path.exists():
            if not learners or not can_hold_files(self._path.parent):  # nothing will be kept
                return None
            return (
                f"what is said is kept in {self._path}, to guess from it in later runs: `memory` "
                "off keeps nothing, and 'spec-cpu memory clear' removes it"
            )
        try:
            return self._take_in(learners)[1]
        except OSError as error:
            return f"cannot read the memory {self._path} ({_reason(error)}): beginning without it"

    def save(self, sources: Iterable[object]) -> str | None:
        """Write what the file holds and what `sources` learnt; a notice where that fails."""
        learners = [source for source in sources if isinstance(source, Learner)]
        if not learners:
            return None
        try:
            self._make_folder()
            with locked(self._path, "save", lambda *_: None, PATIENCE):
                states, notice = self._take_in(learners)
                mine = {learner.name: learner.state() for learner in learners}
                write_memory(self._path, Learnt(self._target, {**states, **mine}))
        except OSError as error:
            return f"cannot keep what was learnt in {self._path} ({_reason(error)})"
        except MemoryFileError as error:
            return f"what was learnt is not kept: {error}"
        return notice

    def _take_in(self, learners: Iterable[Learner]) -> tuple[Mapping[str, State], str | None]:
        """Restore `learners` from the file; what it holds, and perhaps a notice."""
        try:
            states = self._read()
            for learner in learners:
                learner.restore(states.get(learner.name, {}))
        except (DamagedError, ValueError):
            for learner in learners:
                learner.restore({})
            return {}, self._set_aside()
        return states, None

    def _read(self) -> Mapping[str, State]:
        try:
            found = read_memory(self._path)
        except MemoryFileError:
            if self._in_cache and self._path.is_file():
                raise DamagedError from None  # nobody keeps anything else there
            raise
        if found is None:
            return {}
        if found.target != self._target:
            raise MemoryFileError(
                f"{self._path} is the memory of another model ({found.target.name}), not of this "
                f"{self._target.name}: give `memory` another file"
            )
        return found.states

    def _set_aside(self) -> str:
        """Move the file out of the way; a notice."""
        aside, n = self._path.with_name(f"{self._path.name}.damaged"), 1
        while aside.exists():
            n += 1
            aside = self._path.with_name(f"{self._path.name}.damaged-{n}")
        os.replace(self._path, aside)
        return f"the memory {self._path} is damaged: it is {aside.name} now, and a new one begins"

    def _make_folder(self) -> None:
        if self._in_cache:
            self._path.parent.parent.mkdir(parents=True, exist_ok=True)
            self._path.parent.mkdir(mode=0o700, exist_ok=True)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "another process has it"
    return error.strerror or str(error)
