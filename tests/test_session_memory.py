"""Sessions with a memory: the next one starts warm, however this one ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import spec_cpu
from spec_cpu import SamplingParams, Session
from spec_cpu.draft.memory import read_memory
from spec_cpu.errors import MemoryFileError, UsageError

GREEDY = SamplingParams(temperature=0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "own.memory"


def load(target: Path, memory: Path | None, *, seed: int | None = None) -> Session:
    return spec_cpu.load(
        target, "ngram", threads=1, ctx=512, k=6, sampling=GREEDY, memory=memory, seed=seed
    )


def answer(session: Session, prompt: str = "hello") -> str:
    return "".join(s.text for s in session.generate(prompt, max_tokens=60, ignore_eos=True))


def kept(file: Path) -> int:
    """Tokens in the memory."""
    learnt = read_memory(file)
    return 0 if learnt is None else len(learnt.states["ngram"]["tokens"])


def about_memory(session: Session) -> list[str]:
    return [each for each in session.notices if "memory" in each or "kept" in each]


def test_the_second_session_starts_warm(tiny_target: Path, file: Path) -> None:
    accepted, texts = [], []
    for memory in (None, file, file):
        with load(tiny_target, memory) as session:
            texts.append(answer(session))
            accepted.append(session.stats.accepted)
            assert not about_memory(session)
    assert accepted[0] == accepted[1] < accepted[2]
    assert texts[0] == texts[1] == texts[2]


def test_an_earlier_conversation_of_the_same_session_counts_too(
    tiny_target: Path, file: Path
) -> None:
    accepted = []
    with load(tiny_target, file) as session:
        for prompt in ("hello", "something else, and quite long at that", "hello"):
            session.reset()
            answer(session, prompt)
            accepted.append(session.stats.accepted)
    assert accepted[2] > accepted[0]
    assert not list(file.parent.glob("*.part"))


class ConsumerError(Exception):
    """Who takes the steps has an error of its own."""


@pytest.mark.parametrize("how", ["exception", "interrupt", "break", "close"])
def test_an_answer_that_was_broken_off_is_kept(tiny_target: Path, file: Path, how: str) -> None:
    def take(session: Session) -> Iterator[None]:
        for i, _ in enumerate(session.generate("hello", max_tokens=60, ignore_eos=True)):
            if i == 20:
                if how == "close":
                    session.close()
                return
            yield

    raised = {"exception": ConsumerError, "interrupt": KeyboardInterrupt}.get(how)
    try:
        with load(tiny_target, file) as session:
            for _ in take(session):
                pass
            if raised is not None:
                raise raised
    except (ConsumerError, KeyboardInterrupt):
        pass
    assert kept(file) > 20


def test_it_is_written_once_and_only_if_there_was_an_answer(tiny_target: Path, file: Path) -> None:
    with load(tiny_target, file) as session:
        session.render("hello")
    assert not file.exists()
    session = load(tiny_target, file)
    answer(session)
    session.close()
    file.unlink()
    session.close()
    assert not file.exists()


def test_what_cannot_be_kept_is_a_notice(tiny_target: Path, file: Path) -> None:
    with load(tiny_target, file) as session:
        answer(session)
        file.mkdir()
    assert session.closed
    assert "not kept" in about_memory(session)[0]


def test_with_a_seed_it_is_kept_and_not_drafted_from(tiny_target: Path, file: Path) -> None:
    """The same seed gives the same answer, whatever was said before."""
    accepted = []
    for seed in (None, 1, 1, None):
        with load(tiny_target, file, seed=seed) as session:
            assert len(about_memory(session)) == (seed is not None)
            for _ in range(2):
                session.reset()
                answer(session)
                accepted.append(session.stats.accepted)
    assert accepted[2:6] == [accepted[0]] * 4
    assert accepted[1] > accepted[0] < accepted[6]
    file.unlink()
    with load(tiny_target, file, seed=1) as session:
        answer(session)
        answer(session, "and then?")
    with load(tiny_target, file) as session:
        answer(session)
        assert session.stats.accepted > accepted[0]
    with load(tiny_target, None, seed=1) as session:
        assert not about_memory(session)


def test_a_memory_that_cannot_be(tiny_target: Path, tiny_draft: Path, file: Path) -> None:
    with pytest.raises(UsageError, match="needs the draft ngram"):
        spec_cpu.load(tiny_target, tiny_draft, memory=file)
    file.write_text("notes")
    with pytest.raises(MemoryFileError, match="is no memory"):
        load(tiny_target, file)
    assert file.read_text() == "notes"
    with load(tiny_draft, file.with_name("other")) as session:
        answer(session)
    with pytest.raises(MemoryFileError, match="another model"):
        load(tiny_target, file.with_name("other"))
