"""Tokens beside their text: in order, the texts of all of them are what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.llama.model import Model
from spec_cpu.serve.engine.request import Delta, Token
from spec_cpu.serve.http.shown import ShownToken, ShownTokens
from spec_cpu.text.streaming import Piece, TextStream


@given(
    text=st.text(st.sampled_from("ab é🙂 <|im_end|>\n"), max_size=40),
    stop=st.sampled_from(["", "ab", "b ", "🙂", "aaaa"]),
    size=st.integers(1, 5),
)
@pytest.mark.usefixtures("served_model")
def test_tokens_come_with_their_text(served_model: Model, text: str, stop: str, size: int) -> None:
    vocab = served_model.vocab
    ids = vocab.tokenize(f"{text}<|im_end|>", add_special=False)
    stream, tokens = TextStream(vocab, [stop]), ShownTokens(vocab, ["<|im_end|>"])
    found: list[ShownToken] = []
    shown = told = ""
    taken: list[int] = []
    for i in range(0, len(ids), size):
        pieces: list[Piece] = []
        step: list[Token] = []
        for token in ids[i : i + size]:
            step.append(Token(token, "plain"))
            pieces += stream.push(token, "plain")
            if stream.stopped:
                break
        if i + size >= len(ids):
            pieces += stream.finish("plain")
        delta = Delta(pieces, step, 0, 0)
        taken += [one.id for one in step]
        text_now, complete = tokens.push(delta)
        told += text_now
        shown += delta.text
        found += complete
        assert shown.startswith("".join(one.text for one in found))
        if stream.stopped:
            break
    found += tokens.finish()
    assert [one.token.id for one in found] == taken
    assert "".join(one.text for one in found) == shown
    assert told.replace("<|im_end|>", "") == shown.replace("<|im_end|>", "")
    marks = [one.mark for one in found if one.mark]
    assert told.count("<|im_end|>") == shown.count("<|im_end|>") + len(marks)
