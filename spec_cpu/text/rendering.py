"""A prompt as the target reads it: through the chat template, in tokens."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spec_cpu.arguments import check_prompt
from spec_cpu.errors import UsageError
from spec_cpu.llama.chat import Message, Turn
from spec_cpu.llama.model import Model
from spec_cpu.text.conversation import read_conversation


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the target reads it.

    Attributes:
        text: without a BOS of the template's own, which is what programs take that add one.
        tokens: with a BOS, if the model wants one.
        stops: the strings that end an answer to it.
        notice: what a person should know about the template.
    """

    text: str
    tokens: list[int]
    stops: tuple[str, ...] = ()
    notice: str | None = None


def render(
    target: Model, before: Sequence[Message] | None, prompt: str, *, special: bool = True
) -> Rendered:
    """`prompt` after the turns `before`; None: as it is, outside any conversation.

    Args:
        special: names of control tokens in a prompt outside any conversation are those tokens. In
            a conversation only the template writes them.

    Raises:
        UsageError: an empty prompt, or turns that are none.
    """
    check_prompt(prompt)
    check_turns(before)
    vocab = target.vocab
    if before is not None:
        return render_turns(target, [*before, Message(role="user", content=prompt)])
    return _checked(Rendered(prompt, vocab.tokenize(prompt, parse_special=special)))


def render_turns(
    target: Model, turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]] = ()
) -> Rendered:
    """A conversation up to where the next answer begins.

    Args:
        turns: at least one. Their roles, and the names of their keys, were checked.
        tools: functions that may be called, as OpenAI describes them.

    Raises:
        UsageError: the chat template refuses the conversation.
    """
    template = target.chat_template
    text, tokens = read_conversation(template, target.vocab, turns, tools)
    return _checked(Rendered(text, tokens, template.stops, template.notice))


def _checked(rendered: Rendered) -> Rendered:
    if not rendered.tokens:
        raise UsageError("the prompt has no tokens in this model's vocabulary")
    return rendered


def check_turns(turns: object) -> None:
    """Raise UsageError unless these are turns, or None: people change `Session.messages`."""
    if turns is None:
        return
    wanted = "messages are a list of turns, each a dict with a role and a content of text"
    if not isinstance(turns, list | tuple):
        raise UsageError(f"{wanted}, not {reprlib.repr(turns)}")
    for turn in turns:
        if not (
            isinstance(turn, Mapping)
            and isinstance(turn.get("role"), str)
            and isinstance(turn.get("content"), str)
        ):
            raise UsageError(f"{wanted}, not {reprlib.repr(turn)} among them")
