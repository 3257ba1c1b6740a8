"""Sessions that draft from text: the exactness of sessions, reference files, good and bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny

import spec_cpu
from spec_cpu import SamplingParams, Session, defaults
from spec_cpu.costs import measure
from spec_cpu.costs.costs import Costs
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.errors import UsageError
from spec_cpu.llama.model import Model
from spec_cpu.machine import hardware
from spec_cpu.text import references

GREEDY = SamplingParams(temperature=0)
FLAT = Costs(
    passes=tuple(0.01 * (1 + 0.01 * n) for n in range(defaults.MAX_TREE_NODES + 1)),
    draft_step=0.0,
    draft_catch_up=0.0,
    rebuild=0.0,
    row=0.0,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A machine on which verification is nearly free; the list has the drafts it was asked for."""
    asked: list[object] = []

    def made_up(*_sequence: object, draft: object, **_named: object) -> Costs:
        asked.append(draft)
        return FLAT

    monkeypatch.setattr(measure, "measure", made_up)
    return asked


def answer(session: Session, prompt: str = "hello", **how: Any) -> str:
    how = {"max_tokens": 120, "ignore_eos": True, **how}
    return "".join(step.text for step in session.generate(prompt, **how))


@pytest.fixture
def told(tiny_target: Path) -> str:
    """What `tiny_target` answers at temperature 0."""
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        return answer(plain)


def test_a_reference_that_has_the_answer(
    tiny_target: Path, tmp_path: Path, flat: list[object]
) -> None:
    """Its tokens may differ from those of the answer: at least the text does not."""
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        steps = list(plain.generate("hello", max_tokens=120, ignore_eos=True))
        tokens = [token for step in steps for token in step.tokens]
        expected = "".join(step.text for step in steps)
    with spec_cpu.load(tiny_target, "ngram", threads=1, sampling=GREEDY, seed=1) as session:
        session.sources[:] = [NgramSource([tokens])]
        assert answer(session) == expected
        stats = session.stats
        assert stats.accepted > 60
        assert stats.tokens_per_cycle
        assert stats.tokens_per_cycle > 2
        assert session.why_plain is None
        assert flat == [None], "nothing but passes of the target is measured"
        assert stats.tried_by_position[0] >= stats.accepted_by_position[0] > 0
        assert stats.alpha
        assert stats.alpha_exact == pytest.approx(stats.alpha)
        answer(session, "and then?")
        assert answer(session, k=0)
        assert session.stats.drafted == 0
        assert answer(session, k=6)


@pytest.mark.usefixtures("flat")
@pytest.mark.parametrize("k", [None, 5, 24])
def test_greedy_text_is_that_of_plain_decoding(
    tiny_target: Path, tmp_path: Path, told: str, k: int | None
) -> None:
    file = tmp_path / "reference.txt"
    file.write_text("hello " * 40 + told.replace("\0", " "), encoding="utf-8")
    with spec_cpu.load(
        tiny_target, "ngram", threads=1, sampling=GREEDY, seed=1, lookup=[file, file], k=k
    ) as session:
        for prompt in ("hello", "hello again"):
            text = answer(session, prompt)
            assert text == told or prompt != "hello"


@pytest.mark.usefixtures("flat")
def test_the_same_seed_gives_the_same_text(tiny_target: Path) -> None:
    texts = []
    for _ in range(2):
        with spec_cpu.load(tiny_target, "ngram", threads=1, seed=3) as session:
            texts.append([answer(session, "abc " * 30, raw=True) for _ in range(2)])
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("flat")
def test_steps_of_trees_add_up(tiny_target: Path) -> None:
    with spec_cpu.load(tiny_target, "ngram", threads=1, seed=3, k=8) as session:
        steps = list(
            session.generate("ab ac ad ab ac ad " * 9, max_tokens=80, raw=True, ignore_eos=True)
        )
    assert sum(len(step.tokens) for step in steps) == 80
    for step in steps:
        cycle = step.cycle
        assert cycle.accepted <= cycle.tried <= cycle.depth <= cycle.drafted
        if cycle.drafted and step.pieces:
            last = "bonus" if cycle.accepted == cycle.tried else "correction"
            # What the last token adds may be held back: the beginning of a character.
            assert step.pieces[-1].origin in {last, "accepted"}


def test_a_recurrent_target_decodes_plainly(models: Path) -> None:
    path = tiny.write_mamba(models / "lookup-mamba.gguf", n_vocab=320)
    with spec_cpu.load(path, "ngram", threads=1) as session:
        assert session.sources == []
        assert any("recurrent" in notice for notice in session.notices)
        assert answer(session, max_tokens=5)


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\n", "is empty"),
    "binary": (b"GGUF\0\0\0\3", "is binary"),
    "latin-1": (b"caf\xe9 au lait", "not UTF-8 text .byte 0xe9 at offset 3."),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_text_is_refused(tiny_target: Path, tmp_path: Path, kind: str) -> None:
    data, message = BAD[kind]
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=message):
        spec_cpu.load(tiny_target, "ngram", lookup=[file])


def test_files_that_cannot_be_read(tiny_target: Path, tmp_path: Path) -> None:
    for file, message in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "is a directory"),
        (Path("/dev/zero"), "is a device"),
    ):
        with pytest.raises(UsageError, match=message):
            spec_cpu.load(tiny_target, "ngram", lookup=[file])


def test_a_lookup_needs_the_draft_that_looks_up(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path
) -> None:
    for draft in ("none", tiny_draft):
        with pytest.raises(UsageError, match="ngram"):
            spec_cpu.load(tiny_target, draft, lookup=[tmp_path / "none"])


@pytest.mark.parametrize("most", [1000, 1001, 1002, 1003])
def test_of_a_large_file_the_beginning_is_used_and_it_says_how_much(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Cut between characters, whatever their length."""
    monkeypatch.setattr(hardware, "available_memory", lambda: most * references.MEMORY)
    file = tmp_path / "large.txt"
    file.write_text("aé€😀" * 200, encoding="utf-8")
    notices: list[str] = []
    with Model(tiny_target) as model:
        (tokens,) = references.read_references([file], model.vocab, notices)
    assert len(notices) == 1
    assert "things are looked up in its first " in notices[0]
    used = int(notices[0].split("first ")[1].split()[0].replace(",", ""))
    assert most - 4 <= used <= most
    assert tokens


def test_a_byte_order_mark_is_left_out(tiny_target: Path, tmp_path: Path) -> None:
    file = tmp_path / "marked.txt"
    file.write_bytes(b"\xef\xbb\xbfhello there")
    plain = tmp_path / "plain.txt"
    plain.write_bytes(b"hello there")
    with Model(tiny_target) as model:
        marked, expected = references.read_references([file, plain], model.vocab, [])
    assert marked == expected
