"""From messages to the prompt a model was trained on: its own chat template, or a plain one."""

from __future__ import annotations

from typing import Any, TypedDict

from llama_cpp.llama_chat_format import Jinja2ChatFormatter


class Message(TypedDict):
    """One turn. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


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
        except Exception as error:
            self._use_plain(error)

    def render(self, messages: list[Message]) -> str:
        """The prompt for the next answer to `messages`."""
        if self._formatter is None:
            return _plain(messages)
        try:
            return self._apply(messages)
        except Exception as error:
            self._use_plain(error)
            return _plain(messages)

    @property
    def stops(self) -> tuple[str, ...]:
        """What ends an answer besides the model's own end tokens."""
        return () if self._formatter is not None else (f"\n{_USER}",)

    def _apply(self, messages: list[Message]) -> str:
        try:
            return str(self._formatter(messages=messages).prompt)
        except Exception:
            # Some models (Gemma among them) refuse a system turn: say it in the first user turn.
            if not messages or messages[0]["role"] != "system":
                raise
            return str(self._formatter(messages=_without_system(messages)).prompt)

    def _use_plain(self, error: Exception) -> None:
        self._formatter = None
        self.notice = (
            f"the model's chat template does not work here ({error}): "
            "using a plain User/Assistant one"
        )


_USER = "User:"
_NAMES = {"system": "System:", "user": _USER, "assistant": "Assistant:"}


def _plain(messages: list[Message]) -> str:
    turns = [f"{_NAMES[message['role']]} {message['content']}\n" for message in messages]
    return "".join(turns) + _NAMES["assistant"]


def _without_system(messages: list[Message]) -> list[Message]:
    system, first, *rest = messages
    content = f"{system['content']}\n\n{first['content']}"
    return [Message(role=first["role"], content=content), *rest]
