"""Hundreds of requests from many threads: every answer is complete and its own, nothing is left."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiny
from engine import PIPELINES
from made_up import measured
from served import PATIENCE, Told, opened, plain, request, together

from spec_cpu import SamplingParams
from spec_cpu.costs import measure
from spec_cpu.serve.engine import loading
from spec_cpu.serve.engine.answer import Answer
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.request import Ended, Event, Request

CLIENTS, CTX = 8, 96
SAMPLINGS = (SamplingParams(temperature=0), SamplingParams(temperature=1), PIPELINES["penalties"])


@dataclass
class Visit:
    """A request, and after how many events who asked goes away; None: never."""

    asked: Request
    leaves: int | None


class Impatient(Told):
    """Says when it was told of so many events."""

    def __init__(self, leaves: int | None) -> None:
        super().__init__()
        self._leaves = leaves
        self.enough = threading.Event()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if len(self.events) == self._leaves or self.ended.is_set():
            self.enough.set()


def visits(rng: np.random.Generator, n: int) -> list[Visit]:
    """Prompts of a few kinds, so that they begin alike, of all lengths."""
    stems = [[tiny.BOS, *rng.integers(3, 32, 50).tolist()] for _ in range(5)]
    asked = []
    for seed in range(n):
        stem = stems[rng.integers(len(stems))][: rng.integers(1, 50)]
        prompt = [*stem, *rng.integers(3, 32, rng.integers(0, 20)).tolist()]
        one = request(
            prompt,
            max_tokens=int(rng.integers(1, min(40, CTX - len(prompt)))),
            sampling=SAMPLINGS[rng.integers(len(SAMPLINGS))],
            seed=seed,
            references=[stems[0]] if rng.random() < 0.3 else [],
        )
        asked.append(Visit(one, int(rng.integers(0, 12)) if rng.random() < 0.3 else None))
    return asked


def visit(engine: BatchingEngine, one: Visit) -> list[int] | None:
    """The tokens of an answer; None where it was left."""
    told = Impatient(one.leaves)
    told.handle = engine.submit(one.asked, told)
    if one.leaves is not None:
        if one.leaves:
            assert told.enough.wait(PATIENCE)
        told.handle.cancel()
    told.wait()
    assert isinstance(told.events[-1], Ended), told.events[-1]
    assert told.end.stats.tokens == len(told.tokens)
    tokens = [token.id for token in told.tokens]
    if told.end.finish == "interrupted":
        assert one.leaves is not None
        assert len(tokens) < (one.asked.max_tokens or 0)
    else:
        assert len(tokens) == one.asked.max_tokens
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["none", "ngram", "both", "eagle"])
@pytest.mark.parametrize("k", [5, None])
def test_every_answer_is_its_own_and_nothing_is_left(
    files: dict[str, Path], draft: str, k: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "measure", measured)
    monkeypatch.setattr(loading, "neutral", lambda _, n: [5] * n)  # this target knows no sentence
    name = f"ngram,{files['model']}" if draft == "both" else files.get(draft, draft)
    process = psutil.Process(os.getpid())
    rng = np.random.default_rng(len(draft))
    threads, memory = threading.active_count(), []
    with opened(files["target"], name, k=k, slots=3, ctx=CTX, queue=CLIENTS, cache_ram=1) as engine:
        for _ in range(2):
            asked = visits(rng, 40 if k is None else 120)  # wide trees take their time
            expected = plain(files["target"], [one.asked for one in asked])
            with ThreadPoolExecutor(CLIENTS) as clients:
                told = list(clients.map(lambda one: visit(engine, one), asked))
            for tokens, whole in zip(told, expected, strict=True):
                assert tokens == whole[: len(tokens)]
            gc.collect()
            memory.append(process.memory_info().rss)
            assert [one for one in gc.get_objects() if type(one) is Answer] == []
            assert engine.state.active == engine.state.waiting == 0
            assert_no_cell_is_lost(engine)
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert memory[1] - memory[0] < 2**24


def assert_no_cell_is_lost(engine: BatchingEngine) -> None:
    """All slots at once take conversations as long as the context."""
    asked = [request([tiny.BOS, *[token] * 50], max_tokens=CTX - 51) for token in (5, 6, 7)]
    assert [one.ids for one in together(engine, asked)] == plain(engine.model.path, asked)
