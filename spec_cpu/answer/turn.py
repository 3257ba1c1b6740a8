"""An answer under way: what was said of it stands in the conversation at once."""

from __future__ import annotations

from spec_cpu.llama.chat import Message
from spec_cpu.text.streaming import TextStream


class Answer:
    """Adds to a conversation what is said of one answer."""

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
        """Add `text` to the conversation at once: whoever reads the answer may never come back."""
        if self._messages is None or not text:
            return
        if self._turn is None:
            self._turn = Message(role="assistant", content="")
            self._messages += [Message(role="user", content=self._prompt), self._turn]
        self._turn["content"] += text

    def break_off(self) -> str:
        """Say what was held back, and return it: nothing where the answer came to its end."""
        held_back = "".join(piece.text for piece in self._stream.finish("plain"))
        self.say(held_back)
        return held_back
