"""Text from tokens: characters come out whole, stop strings not at all."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.llama.vocab import Detokenizer
from spec_cpu.text.streaming import Piece, TextStream


class Pieces:
    """A vocabulary whose tokens are the given byte strings."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def piece(self, token: int) -> bytes:
        return self.pieces[token]


def stream_all(pieces: list[bytes], stops: list[str]) -> tuple[list[str], bool]:
    vocab: Any = Pieces(pieces)
    stream = TextStream(vocab, stops)
    shown = []
    for token in range(len(pieces)):
        shown.append("".join(piece.text for piece in stream.push(token, "plain")))
        if stream.stopped:
            break
    shown.append("".join(piece.text for piece in stream.finish("plain")))
    return shown, stream.stopped


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(text=st.text(), sizes=st.lists(st.integers(0, 5)))
def test_characters_split_over_tokens_come_out_whole(text: str, sizes: list[int]) -> None:
    shown, _ = stream_all(cut(text.encode(), sizes), [])
    assert "".join(shown) == text
    assert all("\ufffd" not in part for part in shown if "\ufffd" not in text)


@given(data=st.binary(), sizes=st.lists(st.integers(0, 5)))
def test_bytes_that_are_no_text_become_replacement_characters(
    data: bytes, sizes: list[int]
) -> None:
    shown, _ = stream_all(cut(data, sizes), [])
    assert "".join(shown) == data.decode("utf-8", "replace")


small_text = st.text(st.sampled_from("abé"), max_size=30)


@given(
    text=small_text,
    stops=st.lists(st.text(st.sampled_from("abé"), min_size=1, max_size=4), min_size=1, max_size=3),
    sizes=st.lists(st.integers(0, 5)),
)
def test_the_answer_ends_before_the_first_stop_string(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    shown, stopped = stream_all(cut(text.encode(), sizes), stops)
    result = "".join(shown)
    assert stopped == any(stop in text for stop in stops)
    assert all(stop not in result for stop in stops)
    if not stopped:
        assert result == text
    else:
        assert text.startswith(result)
        rest = text[len(result) :]
        assert any(rest.startswith(stop) for stop in stops)


def test_what_could_become_a_stop_string_waits() -> None:
    vocab: Any = Pieces([b"one ", b"EN", b"D"])
    stream = TextStream(vocab, ["ENDE"])
    assert stream.push(0, "accepted") == [Piece("one ", "accepted")]
    assert stream.push(1, "accepted") == []
    assert stream.push(2, "bonus") == []
    assert stream.finish("bonus") == [Piece("EN", "accepted"), Piece("D", "bonus")]


@given(
    tokens=st.lists(st.integers(0, 4), max_size=12),
    stops=st.lists(
        st.lists(st.sampled_from(["a", "b", "<x>", "<y>"]), min_size=1, max_size=3).map("".join),
        min_size=1,
        max_size=3,
    ),
)
def test_stop_strings_may_spell_control_tokens(tokens: list[int], stops: list[str]) -> None:
    """Rule: control tokens count as their names when a stop is looked for, and never show."""
    vocab: Any = Pieces([b"a", b"b", b"ab", b"", b""])
    names = ["a", "b", "ab", "<x>", "<y>"]
    stream = TextStream(vocab, stops, {3: "<x>", 4: "<y>"})
    shown, spelt = "", ""
    for token in tokens:
        shown += "".join(piece.text for piece in stream.push(token, "plain"))
        spelt += names[token]
        assert stream.stopped == any(stop in spelt for stop in stops)
        if stream.stopped:
            break
    shown += "".join(piece.text for piece in stream.finish("plain"))
    ends = [spelt.find(stop) for stop in stops if stop in spelt]
    spelt = spelt[: min(ends)] if ends else spelt
    assert shown == spelt.replace("<x>", "").replace("<y>", "")


def test_a_piece_keeps_its_origin_when_it_is_cut() -> None:
    vocab: Any = Pieces([b"abX", b"Ycd"])
    stream = TextStream(vocab, ["XY"])
    assert stream.push(0, "accepted") == [Piece("ab", "accepted")]
    assert stream.push(1, "correction") == []
    assert stream.stopped


def test_the_detokenizer_marks_a_character_that_never_ends() -> None:
    vocab: Any = Pieces(["é".encode()[:1]])
    detokenizer = Detokenizer(vocab)
    assert detokenizer.push(0) == ""
    assert detokenizer.flush() == "\ufffd"
