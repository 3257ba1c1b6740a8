"""Conversations of all kinds, for laws about them."""

from __future__ import annotations

from hypothesis import strategies as st

from spec_cpu import Message
from spec_cpu.conversations.record import Conversation, HeldWith

TURNS = st.builds(
    lambda role, content: Message(role=role, content=content),
    st.sampled_from(["system", "user", "assistant"]),
    st.text(),
)
SETTINGS = st.dictionaries(
    st.text(),
    st.none() | st.integers() | st.floats(allow_nan=False) | st.lists(st.text(), max_size=3),
    max_size=4,
)
CONVERSATIONS = st.builds(
    Conversation,
    st.builds(HeldWith, st.text(), st.text(), st.text(), st.text()),
    st.lists(TURNS, max_size=6),
    SETTINGS,
    st.sampled_from([None, "stop", "length", "context", "interrupted"]),
)


def talk(*said: str, finish: str | None = "stop") -> Conversation:
    """A conversation in which `said` was said in turn."""
    turns = [
        Message(role="assistant" if i % 2 else "user", content=text) for i, text in enumerate(said)
    ]
    return Conversation(HeldWith("big.gguf", "ngram", "big.gguf", "0f"), turns, {}, finish)  # type: ignore[arg-type]
