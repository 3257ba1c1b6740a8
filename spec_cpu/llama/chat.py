"""From messages to the prompt a model was trained on: its own chat template, or a plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from spec_cpu.errors import UsageError


class Message(TypedDict):
    """One turn. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


Turn: TypeAlias = Mapping[str, Any]
"""A `Message`, or one with more that templates know, such as `tool_calls`; its role can be `tool`,
too."""


class ChatTemplate:
    """Renders a conversation, up to where the assistant's answer begins.

    Attributes:
        source: of the model's own template; empty if it has none.
        notice: says when that is missing or cannot be used.
    """

    def __init__(self, source: str | None, *, bos: str, eos: str) -> None:
        self.source = source or ""
        self.notice: str | None = None
        self._formatter: Any = None
        if source is None:
            self.notice = "this model has no chat template: using a plain User/Assistant one"
            return
        try:
            self._formatter = Jinja2ChatFormatter(source, eos_token=eos, bos_token=bos)
            self._apply([Message(role="user", content=".")], ())
        except Exception as error:
            self._use_plain(error)

    def render(self, messages: Sequence[Turn], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The prompt for the next answer to `messages`.

        Args:
            tools: functions that may be called, as OpenAI describes them; for a template that has a
                place for them.

        Raises:
            UsageError: the template refuses the conversation, for the order of its turns, say.
        """
        if self._formatter is None:
            return _plain(messages)
        try:
            return self._apply(messages, tools)
        except Exception as error:
            raise UsageError(f"the model's chat template refuses this: {error}") from None

    @property
    def stops(self) -> tuple[str, ...]:
        """What ends an answer besides the model's own end tokens."""
        return () if self._formatter is not None else (f"\n{_USER}",)

    def _apply(self, messages: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> str:
        try:
            return str(self._formatter(messages=messages, tools=tools or None).prompt)
        except Exception:
            # Some models (Gemma among them) refuse a system turn: say it in the first user turn.
            if len(messages) < 2 or messages[0]["role"] != "system":
                raise
            merged = _without_system(messages)
            return str(self._formatter(messages=merged, tools=tools or None).prompt)

    def _use_plain(self, error: Exception) -> None:
        self._formatter = None
        self.notice = (
            f"the model's chat template does not work here ({error}): "
            "using a plain User/Assistant one"
        )


_USER = "User:"
_NAMES = {"system": "System:", "user": _USER, "assistant": "Assistant:", "tool": "Tool:"}


def _plain(messages: Sequence[Turn]) -> str:
    turns = [f"{_NAMES[message['role']]} {message['content']}\n" for message in messages]
    return "".join(turns) + _NAMES["assistant"]


def _without_system(messages: Sequence[Turn]) -> list[Turn]:
    system, first, *rest = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]
