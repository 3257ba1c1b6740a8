"""Which slot a prompt gets, what is known there already, and what is kept aside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import PATIENCE, TEXT, Held, Told, ask, opened, plain, request, together

from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence, shared_prefix
from spec_cpu.serve.engine import slots
from spec_cpu.serve.engine.cells import Cells
from spec_cpu.serve.engine.request import Delta
from spec_cpu.serve.engine.slots import KeptTexts, Slot, Slots

CTX = 64
WORTH = 8


@pytest.fixture(autouse=True)
def _keeps_short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_WORTH_KEEPING", WORTH)


@pytest.fixture(scope="module")
def model(models: Path) -> Iterator[Model]:
    path = tiny.write_llama(models / "slots.gguf", n_vocab=32, scale=3, dtype="Q4_0")
    with Model(path) as model:
        yield model


def cells_of(model: Model, texts: int, spare: int = 16) -> Cells:
    context = Context(
        model, n_ctx=texts * CTX + spare, n_seq=texts, threads=1, parks=True, max_outputs=16
    )
    return Cells(context, texts, paths=1)


def slots_of(cells: Cells, kept: KeptTexts) -> tuple[Slots, list[Slot]]:
    rooms = [Slot(sequence, []) for sequence in cells.sequences]
    return Slots(rooms, cells, kept, forgets=True), rooms


def read(slot: Slot, text: Sequence[int], cells: Cells) -> int:
    """Bring a slot to `text`, as an answer does; tokens that were known."""
    known = slot.sequence.reuse(text)
    cells.make_room(len(text) - known)
    slot.sequence.prefill(text[known:])
    return known


def rows_after(slot: Slot, cells: Cells) -> np.ndarray:
    """The logits of one more token, which is taken back."""
    n = len(slot.sequence)
    cells.make_room(1)
    row = slot.sequence.score([7])[0].copy()
    slot.sequence.truncate(n)
    return row


PROMPTS = st.lists(
    st.tuples(
        st.lists(st.integers(3, 5), min_size=1, max_size=CTX - 2),  # few tokens: much is shared
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROMPTS, st.sampled_from([0, 2_000, 100_000]))
def test_whatever_was_asked_before_a_slot_holds_its_prompt(
    model: Model, prompts: list[tuple[list[int], bool]], most: int
) -> None:
    """Law: what a slot knows is the beginning of its prompt, as much of it as any idle slot, any
    busy one or any text kept aside has; and what follows is computed as if nothing was known."""
    cells = cells_of(model, texts=3)
    plain = cells_of(model, texts=1)
    alone = plain.sequences[0]
    with cells.context, plain.context:
        kept = KeptTexts(most)
        rooms_for, rooms = slots_of(cells, kept)
        busy: list[Slot] = []
        for prompt, stays in prompts:
            texts = [list(slot.sequence.tokens) for slot in rooms]
            aside = [list(text) for text in kept._texts]
            before = [slot.busy for slot in rooms]
            slot = rooms_for.take(prompt)
            if slot is None:
                assert all(before)
                busy.pop(0).busy = False
                continue
            number = rooms.index(slot)
            assert not before[number]
            assert slot.busy
            assert slot.sequence.tokens == prompt[: len(slot.sequence)] or (
                # it goes on with what it had, if more than half of that is in the prompt
                2 * shared_prefix(texts[number], prompt) > len(texts[number])
                and slot.sequence.tokens == texts[number]
            )
            known = read(slot, prompt, cells)
            most_known = max(shared_prefix(text, prompt) for text in texts)
            of_kept = max((shared_prefix(text, prompt) for text in aside), default=0)
            assert known == max(most_known, of_kept if of_kept >= WORTH else 0)
            alone.truncate(0)
            plain.make_room(len(prompt) + 1)
            alone.prefill(prompt)
            np.testing.assert_array_equal(rows_after(slot, cells), alone.score([7])[0])
            if stays:
                busy.append(slot)
            else:
                slot.busy = False
            assert sum(map(len, kept._texts.values())) == kept._bytes <= most


def test_who_was_not_used_for_longest_makes_room(model: Model) -> None:
    cells = cells_of(model, texts=3)
    with cells.context:
        rooms_for, rooms = slots_of(cells, KeptTexts(0))
        taken = []
        for prompt in ([3] * 9, [4] * 9, [5] * 9, [3] * 12, [6] * 9, [7] * 9, [3] * 15):
            slot = rooms_for.take(prompt)
            assert slot is not None
            read(slot, prompt, cells)
            slot.busy = False
            taken.append(rooms.index(slot))
    assert taken == [0, 1, 2, 0, 1, 2, 0]


def test_nobody_gets_a_slot_while_all_are_busy(model: Model) -> None:
    cells = cells_of(model, texts=2)
    with cells.context:
        rooms_for, rooms = slots_of(cells, KeptTexts(0))
        assert {rooms_for.take([3]), rooms_for.take([3])} == set(rooms)
        assert rooms_for.take([3]) is None
        rooms[1].busy = False
        assert rooms_for.take([4]) is rooms[1]


def test_what_is_kept_has_a_bound_and_the_latest_used_stay(model: Model) -> None:
    cells = cells_of(model, texts=1)
    with cells.context:
        sequence = cells.sequences[0]

        def keep(text: list[int]) -> None:
            sequence.reuse(text)
            cells.make_room(len(text))
            sequence.prefill(text[len(sequence) :])
            kept.keep(sequence)

        texts = [[token] * 20 for token in range(3, 8)]
        kept = KeptTexts(10**9)
        keep(texts[0])
        size = kept._bytes
        most = 7 * size // 2
        kept = KeptTexts(most)
        for text in texts[:3]:
            keep(text)
        assert kept.find([*texts[0], 9]) is not None  # used again
        keep(texts[3])
        assert [kept.find(text) is not None for text in texts] == [True, False, True, True, False]
        keep(texts[0] + [4] * 4)  # what goes on takes the place of what it goes on from
        assert kept.find(texts[2]) is not None
        assert len(kept._texts) == 3
        keep([8] * 60)  # as large as three
        assert kept._bytes <= most
        before = list(kept._texts)
        for short in ([9] * (WORTH - 1), []):
            keep(short)
        assert list(kept._texts) == before
        assert kept.find([9] * 20) is None
        assert kept.find([8] * (WORTH - 1)) is None


@pytest.mark.parametrize("cache_ram", [0, 64])
@pytest.mark.parametrize("draft", ["none", "model", "eagle"])
def test_a_conversation_that_goes_on_is_not_read_again(
    files: dict[str, Path], draft: str, cache_ram: int
) -> None:
    """Also where others talked meanwhile; where they had to take its slot it was kept aside."""
    wanted = 32 if draft == "eagle" else 0  # rows that a head wants the features of
    with opened(
        files["target"], files.get(draft, draft), slots=2, ctx=256, cache_ram=cache_ram
    ) as engine:
        prompt = list(TEXT)
        for turn in range(4):
            asked = request(prompt, max_tokens=8)
            told = Told()
            engine.submit(asked, told)
            assert told.ids == plain(files["target"], [asked])[0]
            if turn and (turn < 3 or cache_ram):
                assert told.end.reused_tokens >= len(prompt) - 6 - wanted
            prompt += [*told.ids, 5, 4, 3, 7, 6]
            for other in range(2 if turn == 2 else 1):
                ask(engine, [tiny.BOS, *range(20 + other, 4, -1)]).wait()
    assert turn == 3


def test_what_another_conversation_began_with_is_shared_while_both_go_on(target: Path) -> None:
    with opened(target, ctx=256) as engine:
        common = TEXT * 3
        asked = [request([*common, last], max_tokens=60) for last in (4, 5)]
        first, second = Held(Delta), Told()
        engine.submit(asked[0], first)
        assert first.holds.wait(PATIENCE)
        engine.submit(asked[1], second)
        first.let_go()
        answers = [first.ids, second.ids]
        assert second.end.reused_tokens == len(common)
    assert answers == plain(target, asked)


def test_moving_cells_together_changes_no_text(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of answers, with text that several conversations share."""
    moves = []
    works = Cells._move_together

    def counted(self: Cells) -> None:
        moves.append(sum(map(len, self.sequences)))
        works(self)

    monkeypatch.setattr(Cells, "_move_together", counted)
    asked = [request(TEXT[: 9 + i], max_tokens=30, seed=i) for i in range(6)]
    expected = plain(files["target"], asked)
    for draft in ("none", "ngram", "model", "eagle"):
        moves.clear()
        with opened(files["target"], files.get(draft, draft), ctx=64) as engine:
            for _ in range(3):
                assert [one.ids for one in together(engine, asked)] == expected
        assert len(moves) > 2
        assert any(moves)


def test_there_is_room_for_as_many_tokens_as_was_promised(target: Path) -> None:
    """Law: whatever was there before, each slot takes a conversation as long as the context."""
    for slots_there in (1, 3):
        with opened(target, "ngram", slots=slots_there, ctx=100) as engine:
            for _ in range(3):
                asked = [request([tiny.BOS, *[3 + i] * (60 + i)]) for i in range(slots_there)]
                answers = [Told() for _ in asked]
                for one, told in zip(asked, answers, strict=True):
                    engine.submit(
                        request(one.tokens, max_tokens=None, references=[[3, 4] * 20]), told
                    )
                for one, told in zip(asked, answers, strict=True):
                    assert told.end.finish == "context"
                    assert len(told.ids) == 100 - len(one.tokens)


def test_where_all_cells_are_needed_it_is_said_and_nothing_is_lost(model: Model) -> None:
    cells = cells_of(model, texts=2, spare=0)
    with cells.context:
        for sequence in cells.sequences:
            sequence.prefill([5, 6, 7] * 20)
        held = [list(sequence.tokens) for sequence in cells.sequences]
        with pytest.raises(ContextError, match="2 conversations have 120 tokens, and the cache"):
            cells.make_room(9)
        assert [sequence.tokens for sequence in cells.sequences] == held
        cells.make_room(8)
        cells.sequences[0].truncate(50)
        cells.make_room(18)
        assert cells.context.taken == 110
        rows = [sequence.score([4])[0].copy() for sequence in cells.sequences]
    for text, row in zip(([5, 6, 7] * 20, [5, 6, 7] * 20), rows, strict=True):
        with Context(model, n_ctx=CTX, threads=1) as context:
            sequence = KVSequence(context)
            sequence.prefill(text[:50] if row is rows[0] else text)
            np.testing.assert_array_equal(sequence.score([4])[0], row)


def test_a_memory_that_cannot_be_rolled_back_is_shared_as_a_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    mamba = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=32, n_ctx=256)
    prompts = [TEXT, TEXT[:9], [*TEXT[:9], 4, 4], TEXT[:20], [*TEXT, 5], TEXT[::-1]]
    asked = [request(prompt, max_tokens=12) for prompt in prompts]
    expected = plain(mamba, asked)
    with opened(mamba, "ngram", cache_ram=64) as engine:
        for told in (together(engine, asked), together(engine, asked[::-1])[::-1]):
            assert [one.ids for one in told] == expected
