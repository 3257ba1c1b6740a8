"""The memory of a target: a file that several runs share, that may be damaged, and is private."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec_cpu.cache import lock_file
from spec_cpu.cycle.calibration import Calibration
from spec_cpu.cycle.growth import Growth
from spec_cpu.draft import memory as memory_module
from spec_cpu.draft.base import Scored
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.draft.lookup.recycled import RecycledSource
from spec_cpu.draft.memory import (
    DamagedError,
    Learnt,
    Memory,
    MemoryTarget,
    memory_file,
    read_memory,
    write_memory,
)
from spec_cpu.errors import MemoryFileError
from spec_cpu.sampling.logits import NumpyRowOps

TARGET = MemoryTarget("A model", "0123", n_vocab=100_000)
KEPT = 500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "own.memory"


def source(path: Path, target: MemoryTarget = TARGET) -> tuple[Memory, NgramSource]:
    """What a run has at its beginning."""
    memory, drafter = Memory(path, target), NgramSource(kept=KEPT)
    assert memory.restore([drafter]) is None
    return memory, drafter


def run(path: Path, *texts: Sequence[int]) -> None:
    """A run that follows `texts`."""
    memory, drafter = source(path)
    for text in texts:
        drafter.begin(text)
    assert memory.save([drafter]) is None


def text(n: int, length: int = 40) -> list[int]:
    """The `n`th of texts that have nothing in common."""
    return list(range(1000 * n, 1000 * n + length))


def proposed(drafter: NgramSource, prompt: Sequence[int]) -> tuple[list[int], list[float]]:
    drafter.begin(prompt)
    growth = Growth([drafter], Calibration(), 12, 8, floor=0.1, ends=frozenset())
    growth.fill()
    tree = growth.tree(growth.best())
    return tree.tokens, tree.confidence


def found(path: Path, *texts: Sequence[int]) -> list[bool]:
    """Which of `texts` a run drafts from at its beginning."""
    _, drafter = source(path)
    return [proposed(drafter, [0, *one[5:15]])[0][:5] == one[15:20] for one in texts]


@given(st.lists(st.integers(0, 3), max_size=100), st.lists(st.integers(0, 3), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_next_run_proposes_the_same(path: Path, said: list[int], prompt: list[int]) -> None:
    path.unlink(missing_ok=True)
    drafter, other = NgramSource(kept=KEPT), NgramSource(kept=KEPT)
    drafter.begin(said)
    other.restore(drafter.state())
    run(path, said)
    _, later = source(path)
    assert np.array_equal(later.state()["tokens"], drafter.state()["tokens"])
    assert proposed(later, prompt) == proposed(other, prompt)


def test_what_was_said_is_drafted_from_in_later_runs(path: Path) -> None:
    assert found(path, text(1)) == [False]
    run(path, text(1), text(2))
    run(path, text(3))
    assert found(path, text(1), text(2), text(3), text(4)) == [True, True, True, False]


def test_the_present_text_counts_more_than_earlier_ones(path: Path) -> None:
    said = text(1)
    run(path, *([*said[:20], *text(n)] for n in range(2, 6)))
    _, drafter = source(path)
    tokens, confidence = proposed(drafter, [*said[:20], 7, 8, 9, *said[10:20]])
    assert tokens[0] == 7
    assert confidence[0] > 0.5


def test_the_file_has_a_bound_and_what_is_used_stays(path: Path) -> None:
    sizes = set()
    for n in range(3, 50):
        run(path, text(1), text(n))
        sizes.add(path.stat().st_size)
    assert max(sizes) < 4 * KEPT + 1000
    assert found(path, text(1), text(3), text(48), text(49)) == [True, False, True, True]


def test_nobody_else_may_read_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(path.parent / "a" / "cache"))
    own, before = memory_file("0123"), os.umask(0)
    try:
        memory, drafter = Memory(own, TARGET), NgramSource(kept=KEPT)
        assert "memory clear" in str(memory.restore([drafter])), "the first time it is said"
        for file in (own, path):
            drafter.begin(text(1))
            assert Memory(file, TARGET).save([drafter]) is None
            assert file.stat().st_mode & 0o777 == 0o600
        assert own.parent.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert memory.restore([drafter]) is None


def test_two_runs_at_once_lose_nothing(path: Path) -> None:
    """Not even where the file is full and each of them has all of it in mind."""
    run(path, *(text(n) for n in range(20, 40)))
    runs = [source(path) for _ in range(4)]
    for n, (_, drafter) in enumerate(runs):
        drafter.begin(text(n))
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(lambda one: one[0].save([one[1]]), runs)) == [None] * 4
    assert found(path, *map(text, range(4)), text(39)) == [True] * 5
    assert len(runs[0][1].state()["tokens"]) <= KEPT


def test_what_another_kind_of_source_learnt_stays(path: Path) -> None:
    row = np.array([[1, -1]], np.int32)
    sure = np.array([0.5, 0.25], np.float16)
    write_memory(path, Learnt(TARGET, {"other": {"row": row, "sure": sure}}))
    run(path, text(1))
    kept = read_memory(path)
    assert kept is not None
    assert np.array_equal(kept.states["other"]["row"], row)
    assert kept.states["other"]["sure"].dtype == np.float16
    assert found(path, text(1)) == [True]


def test_two_runs_at_once_lose_no_row_of_the_table(path: Path) -> None:
    """Of a token that both had rows of, that of the later one."""
    runs: list[tuple[Memory, RecycledSource]] = []
    for n in range(3):
        runs.append((Memory(path, TARGET), RecycledSource(40, NumpyRowOps())))
        memory, table = runs[-1]
        assert memory.restore([table]) is None
        logits = np.random.default_rng(n).standard_normal((2, 40)).astype(np.float32)
        table.commit([1], Scored([n, 30], logits))
    for memory, table in runs:
        assert memory.save([table, NgramSource(kept=KEPT)]) is None
    later = RecycledSource(40, NumpyRowOps())
    assert Memory(path, TARGET).restore([later]) is None
    assert [later.follows((n,)) for n in range(3)] == [
        table.follows((n,)) for n, (_, table) in enumerate(runs)
    ]
    assert later.follows((30,)) == runs[-1][1].follows((30,))


def test_what_is_removed_during_a_run_does_not_come_back(path: Path) -> None:
    run(path, text(1))
    memory, drafter = source(path)
    drafter.begin(text(2))
    path.unlink()
    memory.save([drafter])
    assert found(path, text(1), text(2)) == [False, True]


@given(st.floats(0, 1, exclude_max=True), st.one_of(st.none(), st.integers(1, 255)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_damage_is_noticed(path: Path, where: float, change: int | None) -> None:
    """A byte that is another one, or an end that is missing."""
    run(path, text(1))
    data = bytearray(path.read_bytes())
    at = int(where * len(data))
    if change is None:
        del data[at:]
    else:
        data[at] ^= change
    path.write_bytes(data)
    if data:
        with pytest.raises((DamagedError, MemoryFileError)):
            read_memory(path)
    path.unlink()


@pytest.mark.parametrize("damage", ["end", "format", "token", "shape", "number"])
def test_a_damaged_file_is_set_aside(path: Path, damage: str) -> None:
    run(path, text(1))
    for n in ("", "-2"):
        match damage:
            case "end":
                path.write_bytes(path.read_bytes()[:-1])
            case "format":
                path.write_bytes(path.read_bytes().replace(b"format 1", b"format 0"))
            case "token":
                bad = np.array([TARGET.n_vocab], np.int32)
                write_memory(path, Learnt(TARGET, {"ngram": {"tokens": bad}}))
            case "shape":
                bad = np.zeros((2, 2), np.int32)
                write_memory(path, Learnt(TARGET, {"ngram": {"tokens": bad}}))
            case "number":
                nan = np.array([np.nan], np.float16)
                write_memory(path, Learnt(TARGET, {"ngram": {"tokens": nan}}))
        data = path.read_bytes()
        memory, drafter = Memory(path, TARGET), NgramSource(kept=KEPT)
        drafter.begin(text(2))
        notice = memory.restore([drafter])
        aside = path.with_name(f"{path.name}.damaged{n}")
        assert notice is not None
        assert aside.name in notice
        assert "\n" not in notice
        assert aside.read_bytes() == data
        assert memory.save([drafter]) is None
        assert found(path, text(1), text(2)) == [False, True]


@pytest.mark.parametrize("content", [b"my notes\n", b"\0" * 99, b"spec-cpu"])
def test_a_file_of_another_kind_stays_as_it_is(
    path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(content)
    memory, drafter = Memory(path, TARGET), NgramSource(kept=KEPT)
    drafter.begin(text(1))
    with pytest.raises(MemoryFileError, match="give `memory` another file"):
        memory.restore([drafter])
    assert "not kept" in str(memory.save([drafter]))
    assert path.read_bytes() == content
    monkeypatch.setenv("SPEC_CPU_CACHE", str(path.parent))
    own = memory_file("0123")
    own.parent.mkdir()
    own.write_bytes(content)
    assert "damaged" in str(Memory(own, TARGET).restore([drafter])), "nobody put it there"


def test_the_memory_of_another_target_stays_as_it_is(path: Path) -> None:
    run(path, text(1))
    data = path.read_bytes()
    other = Memory(path, MemoryTarget("Another", "4567", n_vocab=100_000))
    with pytest.raises(MemoryFileError, match=r"another model \(A model\), not of this Another"):
        other.restore([NgramSource(kept=KEPT)])
    assert path.read_bytes() == data


def test_places_that_no_memory_can_have(path: Path) -> None:
    with pytest.raises(MemoryFileError, match="no folder"):
        Memory(path / "none" / "one", TARGET)
    for place in (path.parent, Path(os.devnull)):
        with pytest.raises(MemoryFileError, match="is no file"):
            Memory(place, TARGET).restore([])
    path.touch()
    assert found(path, text(1)) == [False], "an empty file is an empty memory"


def test_a_disk_that_is_full_is_a_notice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(path, text(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    memory, drafter = source(path)
    drafter.begin(text(2))
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        assert "No space left" in str(memory.save([drafter]))
    assert found(path, text(1), text(2)) == [True, False]
    assert [file.name for file in path.parent.iterdir() if file.suffix != ".lock"] == [path.name]


def test_a_folder_that_cannot_be_written_is_a_notice(path: Path) -> None:
    path.parent.joinpath("folder").mkdir()
    memory, drafter = source(path.parent / "folder" / "one")
    path.parent.joinpath("folder").rmdir()
    path.parent.joinpath("folder").touch()
    drafter.begin(text(1))
    assert "cannot keep" in str(memory.save([drafter]))


def test_a_process_that_holds_it_is_not_waited_for_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, drafter = source(path)
    drafter.begin(text(1))
    monkeypatch.setattr(memory_module, "PATIENCE", 0)
    with FileLock(lock_file(path)):
        assert "another process has it" in str(memory.save([drafter]))
    assert memory.save([drafter]) is None
