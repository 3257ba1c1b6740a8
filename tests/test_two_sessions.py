"""Two sessions of one process in two threads at once: each writes what it writes alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

import spec_cpu
from spec_cpu import SamplingParams

PATIENCE = 300.0  # seconds after which a thread counts as stuck, on however busy a machine
GREEDY = SamplingParams(temperature=0)
Files = tuple[Path, Path]  # a target and a draft
TURNS = ("hello", "and then", "hello, and then")
KINDS: dict[str, dict[str, Any]] = {
    "draws": {"seed": 3, "k": 4},
    "greedy trees": {"sampling": GREEDY, "k": 6, "shape": "tree"},
    "look-ups": {"draft": "ngram", "sampling": GREEDY, "k": 8},
}
ALONE: dict[tuple[str, str], list[str]] = {}


@pytest.fixture
def files(tiny_target: Path, tiny_draft: Path) -> Files:
    return tiny_target, tiny_draft


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize("kernels", ["off", "on"])
@pytest.mark.parametrize("kinds", [*combinations_with_replacement(KINDS, 2)], ids=" and ".join)
def test_each_writes_what_it_writes_alone(
    files: Files, pool: ThreadPoolExecutor, kinds: tuple[str, str], kernels: str
) -> None:
    for kind in kinds:
        if (kind, kernels) not in ALONE:
            ALONE[kind, kernels] = talk(files, kind, kernels, threading.Barrier(1))
    meeting = threading.Barrier(2)
    talks = [pool.submit(talk, files, kind, kernels, meeting) for kind in kinds]
    said = [each.result(2 * PATIENCE) for each in talks]
    assert said == [ALONE[kind, kernels] for kind in kinds]


def talk(files: Files, kind: str, kernels: str, meeting: threading.Barrier) -> list[str]:
    """Load a session and ask it; each turn begins when the other session's does."""
    target, draft = files
    how: dict[str, Any] = {"draft": draft, "threads": 1, "ctx": 1024, **KINDS[kind]}
    said = []
    try:
        meeting.wait(PATIENCE)
        with spec_cpu.load(target, kernels=kernels, **how) as session:
            assert (session.kernels == "stock") == (kernels == "off")
            for turn in TURNS:
                meeting.wait(PATIENCE)
                said.append(session.answer(turn, max_tokens=60, ignore_eos=True))
            assert session.total.accepted
    except BaseException:
        meeting.abort()
        raise
    return said
