"""From what a client sends to tokens: turns through the chat template, or a text as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spec_cpu.llama.chat import Turn
from spec_cpu.llama.vocab import Vocab
from spec_cpu.serve.http import calls, thoughts
from spec_cpu.serve.http.errors import refused
from spec_cpu.serve.http.schema import Call, ChatTurn, Part, Tool
from spec_cpu.serve.http.service import Service
from spec_cpu.text.rendering import render_turns

_TEXTS = ("text", "input_text", "output_text", "refusal")


@dataclass(frozen=True, slots=True)
class Choosable:
    """The functions that an answer may call.

    Attributes:
        must: it has to call one. `name`: that one; None: any.
    """

    tools: Sequence[Tool] = ()
    must: bool = False
    name: str | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.function.name for tool in self.tools)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the model reads it.

    Attributes:
        stops: the template's own. `begun`: the end of it that is the answer's beginning already.
        thinking: thoughts begin there.
    """

    text: str
    tokens: Sequence[int]
    stops: Sequence[str] = ()
    begun: str = ""
    thinking: bool = False


def choosable(service: Service, tools: Sequence[Tool] | None, choice: Any) -> Choosable:
    """What `tools` and `tool_choice` of a request say.

    Raises:
        ApiError: they make no sense, or the model's template has no place for tools.
    """
    if not tools:
        if choice not in (None, "none", "auto"):
            raise refused("'tool_choice' is only allowed with 'tools'", "tool_choice")
        return Choosable()
    if choice == "none":
        return Choosable()
    if not service.takes_tools:
        raise refused(
            "this model's chat template has no place for tools: leave out 'tools', or serve a "
            "model that was trained to call them",
            "tools",
        )
    if choice in (None, "auto"):
        return Choosable(tools)
    if choice == "required":
        return Choosable(tools, must=True)
    name = _chosen_name(choice)
    found = Choosable(tools, must=True, name=name)
    if name not in found.names:
        raise refused(
            "'tool_choice' is none, auto, required, or an object that names one of 'tools'",
            "tool_choice",
        )
    return found


def _chosen_name(choice: Any) -> str | None:
    """Of {"type": "function", "function": {"name": NAME}}, or with the name beside the type."""
    if not isinstance(choice, dict) or choice.get("type") != "function":
        return None
    inner = choice.get("function", choice)
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


def read_turns(service: Service, turns: Sequence[ChatTurn], may_call: Choosable) -> Prompt:
    """A conversation through the model's template, up to where the answer begins.

    If its last turn is the assistant's, that one goes on.
    """
    vocab = service.engine.model.vocab
    *before, last = [_as_turn(turn, i) for i, turn in enumerate(turns)]
    goes_on = last["role"] == "assistant" and not last.get("tool_calls") and bool(before)
    tools = [tool.model_dump(exclude_none=True) for tool in may_call.tools]
    rendered = render_turns(service.engine.model, before if goes_on else [*before, last], tools)
    text, tokens, begun = rendered.text, list(rendered.tokens), ""
    thinking = text.rstrip().endswith(thoughts.BEGIN)
    if goes_on:
        said, thinking = _said_before(last, thinking=thinking)
        text += said
        tokens += vocab.tokenize(said, add_special=False, parse_special=False)
    if may_call.must:
        begun = calls.opening(service.call_format, may_call.name)
        written = f"\n{thoughts.END}\n\n{begun}" if thinking else begun
        text, thinking = text + written, False
        tokens += vocab.tokenize(written, add_special=False)
    return Prompt(text, tokens, rendered.stops, begun, thinking)


def _said_before(turn: Turn, *, thinking: bool) -> tuple[str, bool]:
    """The text of a turn that goes on, and whether that is in the midst of thoughts.

    `thinking`: the template has begun them.
    """
    thought, said = turn.get("reasoning_content", ""), turn["content"]
    if not thought and not thinking:
        return said, False
    begin = "" if thinking else f"{thoughts.BEGIN}\n"
    if not said:
        return begin + thought, True
    return f"{begin}{thought}\n{thoughts.END}\n\n{said}", False


def _as_turn(turn: ChatTurn, place: int) -> Turn:
    """A turn as templates know them."""
    role = "system" if turn.role == "developer" else turn.role
    said: dict[str, Any] = {"role": role, "content": text_of(turn.content, f"messages[{place}]")}
    if turn.reasoning_content:
        said["reasoning_content"] = turn.reasoning_content
    if turn.tool_calls:
        said["tool_calls"] = [_as_call(call) for call in turn.tool_calls]
    if turn.tool_call_id:
        said["tool_call_id"] = turn.tool_call_id
    return said


def _as_call(call: Call) -> dict[str, Any]:
    """Templates write the arguments as JSON themselves."""
    given: Any = call.function.arguments
    try:
        found = json.loads(call.function.arguments)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        given = found
    named = {"type": "function", "function": {"name": call.function.name, "arguments": given}}
    return named if call.id is None else {"id": call.id, **named}


def text_of(parts: Sequence[Part] | None, where: str) -> str:
    """The text of a turn's parts, a line each. Raises ApiError for a part that is none."""
    said = []
    for i, part in enumerate(parts or ()):
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in _TEXTS or text is None:
            raise refused(
                f"invalid '{where}.content[{i}]': this server reads text alone, not {part.type!r}",
                f"{where}.content[{i}]",
            )
        said.append(text)
    return "\n".join(said)


def read_texts(
    vocab: Vocab, given: Any, param: str, *, may_be_empty: bool = False
) -> list[list[int]]:
    """A text, several, the tokens of one, or those of several: as tokens.

    Args:
        may_be_empty: a text may have nothing but what the model wants before it.

    Raises:
        ApiError: it is none of these, is empty, or has a token that the vocabulary has not.
    """
    if isinstance(given, str) or _are_tokens(given):
        given = [given]
    if not isinstance(given, list) or not given:
        raise refused(f"'{param}' is a text, tokens, or a list of either", param)
    found = []
    for i, one in enumerate(given):
        tokens = one if _are_tokens(one) else None
        if isinstance(one, str) and (one or may_be_empty):
            tokens = vocab.tokenize(one)
        if not tokens:
            raise refused(f"'{param}[{i}]' is neither a text nor tokens, or it is empty", param)
        beyond = [token for token in tokens if not 0 <= token < vocab.n]
        if beyond:
            raise refused(f"'{param}[{i}]': this model has no token {beyond[0]}", param)
        found.append(list(tokens))
    return found


def _are_tokens(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    )
