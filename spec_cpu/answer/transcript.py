"""An answer under way: its text is in the conversation as soon as it is said."""

from __future__ import annotations

from spec_cpu.llama.chat import Message
from spec_cpu.text.streaming import TextStream


class Transcript:
    """Adds the text of one answer to a conversation as it comes."""

    def __init__(self, messages: list[Message] | None, prompt: str, stream: TextStream) -> None:
        """The answer to `prompt` begins.

        Args:
            messages: the conversation that it is part of; None: outside any.
            stream: makes its text.
        """
        self._messages = messages
        self._prompt = prompt
        self._stream = stream
        self._turn: Message | None = None

    def say(self, text: str) -> None:
        """Add `text` at once: the reader may never ask for the next step."""
        if self._messages is None or not text:
            return
        if self._turn is None:
            self._turn = Message(role="assistant", content="")
            self._messages += [Message(role="user", content=self._prompt), self._turn]
        self._turn["content"] += text

    def break_off(self) -> str:
        """Say what was held back, and return it; empty if the answer came to its end."""
        held_back = "".join(piece.text for piece in self._stream.finish("plain"))
        self.say(held_back)
        return held_back
