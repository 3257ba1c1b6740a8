"""An answer under way: its text is in the conversation as soon as it is said."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spec_cpu.errors import UsageError
from spec_cpu.llama.chat import Message
from spec_cpu.llama.vocab import Vocab
from spec_cpu.text.rendering import check_turns
from spec_cpu.text.streaming import TextStream


class Transcript:
    """Adds the text of one answer to a conversation as it comes.

    Attributes:
        stream: makes its text. `tokens`: all that were said.
    """

    def __init__(
        self,
        messages: list[Message] | None,
        prompt: str,
        stream: TextStream,
        cut: CutAnswer | None = None,
    ) -> None:
        """The answer to `prompt` begins, or `cut` goes on.

        Args:
            messages: the conversation that it is part of; None: outside any.
            stream: makes its text.
        """
        self._messages = messages
        self._prompt = prompt
        self.stream = stream
        self._turn = cut.turn if cut else None
        self._said = cut.replay(stream) if cut else ""
        self.tokens = list(cut.tokens or ()) if cut else []

    def take(self, tokens: Sequence[int], text: str) -> None:
        """Add what a step brought."""
        self.tokens += tokens
        self._say(text)

    def break_off(self) -> str:
        """Say what was held back, and return it; empty if the answer came to its end."""
        held_back = "".join(piece.text for piece in self.stream.finish("plain"))
        self._say(held_back)
        return held_back

    def is_turn(self, turn: Message) -> bool:
        """Is `turn` the one that this answer made, as it was said?"""
        return turn is self._turn and turn["content"] == self._said

    def _say(self, text: str) -> None:
        """Add `text` at once: the reader may never ask for the next step."""
        if self._messages is None:
            return
        if self._turn is None:
            if not text:
                return
            self._turn = Message(role="assistant", content="")
            self._messages += [Message(role="user", content=self._prompt), self._turn]
        self._said += text
        self._turn["content"] = self._said


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """An answer that is to go on: the last turn of a conversation.

    Attributes:
        before: the turns before the question. `prompt`: the question.
        tokens: of the answer; None where only its text is known.
    """

    before: Sequence[Message]
    prompt: str
    turn: Message
    tokens: Sequence[int] | None

    def read(self, vocab: Vocab, ends: Collection[int]) -> Sequence[int]:
        """The tokens to go on from.

        Raises:
            UsageError: the answer came to its end: to one of the tokens `ends`.
        """
        if self.tokens is None:
            text = self.turn["content"]
            return vocab.tokenize(text, add_special=False, parse_special=False)
        if self.tokens and self.tokens[-1] in ends:
            raise UsageError(_ENDED)
        return self.tokens

    def replay(self, stream: TextStream) -> str:
        """What `stream` shows of it: without half a character, or half a stop string, at its end.

        Raises:
            UsageError: the answer came to its end: to a stop string.
        """
        if self.tokens is None:
            return self.turn["content"]
        pieces = [piece for token in self.tokens for piece in stream.push(token, "plain")]
        if stream.stopped:
            raise UsageError(_ENDED)
        return "".join(piece.text for piece in pieces)


_ENDED = "the last answer came to its end by itself: there is nothing to go on with"


def cut_answer(messages: Sequence[Message], latest: Transcript | None) -> CutAnswer:
    """The answer that `messages` end with; `latest` was the latest one that was generated.

    Raises:
        UsageError: they end with none, or are no turns.
    """
    check_turns(messages)
    if [turn["role"] for turn in messages[-2:]] != ["user", "assistant"]:
        raise UsageError("there is no answer to go on with: ask something")
    *before, question, turn = messages
    known = latest.tokens if latest and latest.is_turn(turn) else None
    return CutAnswer(before, question["content"], turn, known)
