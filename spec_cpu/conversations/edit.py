"""What was asked in a conversation, and what may be changed in it between two answers."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.llama.chat import Message

_SYSTEM, _USER = "system", "user"


def questions(messages: Sequence[Message]) -> list[str]:
    """What the user said, turn by turn."""
    return [turn["content"] for turn in messages if turn["role"] == _USER]


def take_back(messages: list[Message]) -> list[Message]:
    """Take the last question and its answer away, and return them; nothing if there is none."""
    last = next((i for i in reversed(range(len(messages))) if messages[i]["role"] == _USER), None)
    if last is None:
        return []
    taken = messages[last:]
    del messages[last:]
    return taken


def drop_oldest(messages: list[Message], n: int = 1) -> int:
    """Drop the `n` oldest questions with their answers, but neither the system prompt nor the last.

    Returns:
        How many were dropped.
    """
    questions = [i for i, turn in enumerate(messages) if turn["role"] == _USER]
    dropped = max(0, min(n, len(questions) - 1))
    if dropped:
        del messages[questions[0] : questions[dropped]]
    return dropped


def system_prompt(messages: list[Message]) -> str | None:
    """The system prompt, if the conversation begins with one."""
    return messages[0]["content"] if messages and messages[0]["role"] == _SYSTEM else None


def set_system_prompt(messages: list[Message], text: str | None) -> None:
    """Let the conversation begin with the system prompt `text`, or with none."""
    if system_prompt(messages) is not None:
        del messages[0]
    if text is not None:
        messages.insert(0, Message(role=_SYSTEM, content=text))
