"""Tokens beside the text that is shown of them: which of them is shown whole by now."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from spec_cpu.llama.vocab import Detokenizer, Vocab
from spec_cpu.serve.engine.request import Delta, Token


@dataclass(slots=True)
class ShownToken:
    """A token, and its part of the text; a character split over tokens is the last one's.

    `mark` is its name where it is a control token that says what a text is.
    """

    token: Token
    text: str
    mark: str = ""


@dataclass(slots=True)
class _Waiting:
    token: Token
    text: str
    shown: int = 0  # characters


class ShownTokens:
    """Matches tokens with text, which may lag behind them.

    In order, the texts of all that come out are the text that went in.
    """

    def __init__(self, vocab: Vocab, marks: Collection[str] = ()) -> None:
        """With `marks`: names of control tokens to be told of."""
        self._detokenizer = Detokenizer(vocab)
        self._marks = {vocab.controls[name]: name for name in marks if name in vocab.controls}
        self._waiting: deque[_Waiting] = deque()

    def push(self, delta: Delta) -> tuple[str, list[ShownToken]]:
        """What a step brought.

        Returns:
            The text that is shown now, with the names of marks, and the tokens that are complete.
        """
        for token in delta.tokens:
            self._waiting.append(_Waiting(token, self._detokenizer.push(token.id)))
        shown, done = self._take(delta.text)
        return "".join(shown), done

    def finish(self) -> list[ShownToken]:
        """No more text follows: the tokens that are left, with what was shown of them."""
        rest = [ShownToken(one.token, one.text[: one.shown]) for one in self._waiting]
        self._waiting.clear()
        return rest

    def _take(self, text: str) -> tuple[list[str], list[ShownToken]]:
        shown, done = [], []
        while self._waiting:
            first = self._waiting[0]
            wanted = len(first.text) - first.shown
            if wanted > len(text):
                break
            shown.append(text[:wanted])
            text = text[wanted:]
            mark = self._marks.get(first.token.id, "")
            shown.append(mark)
            done.append(ShownToken(first.token, first.text, mark))
            self._waiting.popleft()
        if self._waiting:
            self._waiting[0].shown += len(text)
        return [*shown, text], done


def alternatives(vocab: Vocab, token: Token) -> Iterator[tuple[str, float]]:
    """What else was drafted in place of `token`, as text, with its chance."""
    for other, chance in token.alternatives:
        yield piece_or_name(vocab, other), round(chance, 4)


def piece_or_name(vocab: Vocab, token: int) -> str:
    """The text of a token by itself; of a control token, its name."""
    return (vocab.piece(token) or vocab.text(token)).decode("utf-8", "replace")
