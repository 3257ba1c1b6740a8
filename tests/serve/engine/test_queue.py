"""Who waits, who goes first, who goes away, and what is left when an engine closes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest
from served import PATIENCE, TEXT, Held, Told, ask, holding, opened, plain, request

from spec_cpu.errors import ModelError, UsageError
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.engine import QueueFullError
from spec_cpu.serve.engine.request import Delta, Ended, Event, Reading

ENDLESS = 90  # tokens: more than any test waits for


@pytest.fixture
def engine(target: Path) -> Iterator[BatchingEngine]:
    with opened(target, slots=2, queue=3) as engine:
        yield engine


def test_the_queue_has_a_bound(engine: BatchingEngine) -> None:
    """What is beyond it is refused with a time to wait, and disturbs nobody."""
    with holding(engine) as held:
        waiting = [ask(engine, TEXT) for _ in range(4)]  # a slot is free, and three may wait
        for _ in range(2):
            told = Told()
            with pytest.raises(QueueFullError, match="try again later") as refused:
                ask(engine, TEXT, told)
            assert refused.value.retry_after > 0
            assert told.events == []
        assert engine.state.waiting == 4
    expected = plain(engine.model.path, [request(TEXT)])[0]
    assert all(one.ids == expected for one in waiting)
    assert held.end.finish == "length"
    assert ask(engine, TEXT).ids == expected


def test_with_no_queue_as_many_are_taken_as_there_are_slots(target: Path) -> None:
    """Also by one who asks again in the moment of an answer's end."""
    with opened(target, slots=1, queue=0) as engine:
        told = Told()

        class Again(Told):
            def __call__(self, event: Event) -> None:
                super().__call__(event)
                if isinstance(event, Ended):
                    ask(engine, TEXT, told)

        with holding(engine, max_tokens=2) as held, pytest.raises(QueueFullError):
            ask(engine, TEXT)
        held.wait()
        ask(engine, TEXT, Again()).wait()
        assert told.end.finish == "length"


def test_they_are_answered_in_the_order_in_which_they_came(target: Path) -> None:
    order: list[int] = []
    with opened(target, slots=1, queue=9) as engine:

        class Numbered(Told):
            def __call__(self, event: Event) -> None:
                super().__call__(event)
                if isinstance(event, Ended):
                    order.append(self.number)

        asked = [Numbered() for _ in range(6)]
        with holding(engine, max_tokens=1) as held:
            for number, told in enumerate(asked):
                told.number = number
                ask(engine, TEXT[number:], told, max_tokens=2)
            assert held.handle.place == 0
            assert [told.handle.place for told in asked] == [1, 2, 3, 4, 5, 6]
        for told in asked:
            assert told.end.finish == "length"
            assert told.handle.place == 0
    assert order == [0, 1, 2, 3, 4, 5]


def test_who_waits_may_go_away(target: Path) -> None:
    """Within a cycle of those that are answered."""
    with opened(target, slots=1) as engine:
        with holding(engine, Delta, max_tokens=ENDLESS) as held:
            ended_after: list[int] = []

            class Gone(Told):
                def __call__(self, event: Event) -> None:
                    super().__call__(event)
                    ended_after.append(len(held.deltas))

            gone, other = Gone(), Told()
            ask(engine, TEXT, gone)
            ask(engine, TEXT, other)
            gone.handle.cancel()
            gone.handle.cancel()
        assert gone.end.finish == "interrupted"
        assert gone.end.stats.tokens == 0
        assert ended_after == [1]
        assert other.ids == plain(target, [request(TEXT)])[0]


@pytest.mark.parametrize("when", [Reading, Delta])
def test_who_is_answered_may_go_away(engine: BatchingEngine, when: type[Event]) -> None:
    """No more is computed for it, and its slot is free within a cycle."""
    told = Held(when)
    ask(engine, TEXT * 3, told, max_tokens=ENDLESS)
    assert told.holds.wait(PATIENCE)
    so_far = len(told.events)
    told.handle.cancel()
    told.let_go()
    assert told.end.finish == "interrupted"
    assert len(told.events) - so_far <= 2  # a cycle that was under way
    assert told.end.stats.tokens == len(told.tokens)
    again = [ask(engine, TEXT) for _ in range(3)]
    expected = plain(engine.model.path, [request(TEXT)])[0]
    assert [one.ids for one in again] == [expected] * 3
    told.handle.cancel()  # long after its end
    assert ask(engine, TEXT).ids == expected


class Clock:
    """A clock that stands still, and a flag for each time that it was looked at."""

    def __init__(self) -> None:
        self.now = 100.0
        self.read = Flag()

    def __call__(self) -> float:
        self.read.set()
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("spec_cpu.serve.engine.batching.monotonic", clock)
    return clock


def closing(engine: BatchingEngine, clock: Clock, grace: float) -> Thread:
    """Another thread that closes the engine, whose own stands still; it has begun to."""
    clock.read.clear()
    thread = Thread(target=engine.close, args=(grace,))
    thread.start()
    assert clock.read.wait(PATIENCE)
    return thread


def test_what_is_under_way_comes_to_its_end_where_there_is_grace(
    engine: BatchingEngine, clock: Clock
) -> None:
    """Who waits is told, and whoever comes later."""
    with holding(engine, Delta, max_tokens=ENDLESS) as held:
        waiting = [ask(engine, TEXT) for _ in range(2)]
        thread = closing(engine, clock, grace=1.0)
        with pytest.raises(UsageError, match="the server is stopping"):
            ask(engine, TEXT)
        with pytest.raises(UsageError, match="the server is stopping"):
            engine.embed(TEXT)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(held.ids) == ENDLESS
    for one in waiting:
        assert "the server is stopping" in str(one.error)
    assert engine.state.active == engine.state.waiting == 0
    engine.close()  # once more does nothing


@pytest.mark.parametrize("second", [None, 0.0, 0.5])
def test_after_the_grace_all_ends_at_once(
    engine: BatchingEngine, clock: Clock, second: float | None
) -> None:
    """A second call makes it shorter, never longer."""
    with holding(engine, Delta, max_tokens=ENDLESS) as held:
        threads = [closing(engine, clock, grace=1.0)]
        if second is not None:
            threads += [closing(engine, clock, grace) for grace in (second, 5.0)]
        clock.now += 1.0 if second is None else second
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert held.end.finish == "interrupted"
    assert len(held.deltas) <= 2


def test_an_embedding_that_nobody_got_to_is_refused_when_the_engine_closes(
    engine: BatchingEngine, clock: Clock
) -> None:
    asked, errors = Flag(), []

    def embed() -> None:
        try:
            engine.embed(Tokens(TEXT, asked))
        except UsageError as error:
            errors.append(str(error))

    class Tokens(list[int]):
        """Says when its own length was asked for in the queue."""

        def __init__(self, tokens: list[int], flag: Flag) -> None:
            super().__init__(tokens)
            self._flag = flag
            self._asked = 0

        def __len__(self) -> int:
            self._flag.set()
            return super().__len__()

    with holding(engine, Delta, max_tokens=ENDLESS):
        waiting = Thread(target=embed)
        waiting.start()
        assert asked.wait(PATIENCE)
        thread = closing(engine, clock, grace=0.0)
    for one in (waiting, thread):
        one.join(PATIENCE)
        assert not one.is_alive()
    assert len(errors) == 1
    assert "the server is stopping" in errors[0]


@pytest.mark.parametrize("draft", ["none", "ngram", "model", "eagle", "medusa"])
def test_an_idle_engine_closes_and_leaves_no_thread_and_no_model(
    files: dict[str, Path], draft: str
) -> None:
    with opened(files["target"], files.get(draft, draft)) as engine:
        ask(engine, TEXT).wait()
        sources = [source for slot in engine._slots._slots for source in slot.sources]
    assert len(sources) == (0 if draft == "none" else 3)
    assert not engine._thread.is_alive()
    for model in (engine.model, *(source.model for source in sources)):
        if model is not None:
            with pytest.raises(ModelError, match="closed"):
                _ = model.handle
    with pytest.raises(UsageError, match="the server is stopping"):
        ask(engine, TEXT)


def test_an_answer_ends_once(target: Path) -> None:
    """Also where the engine closes between its last event and the next cycle."""
    with opened(target) as engine:
        closed = Told()

        class Closes(Told):
            def __call__(self, event: Event) -> None:
                super().__call__(event)
                if isinstance(event, Ended):
                    Thread(target=engine.close).start()
                    while engine._deadline is None:
                        pass

        ask(engine, TEXT, Closes(), max_tokens=3)
        ask(engine, TEXT, closed, max_tokens=ENDLESS)
        assert closed.wait().events
