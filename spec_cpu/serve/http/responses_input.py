"""What /v1/responses takes, and how it becomes turns of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from spec_cpu.serve.http.errors import refused
from spec_cpu.serve.http.prompts import text_of
from spec_cpu.serve.http.schema import (
    Call,
    Called,
    ChatTurn,
    Checked,
    Content,
    Format,
    Function,
    Name,
    Part,
    Sampling,
    Tool,
)


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class Item(Checked):
    """A message, a call that was made, what it gave, or thoughts."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None


class FlatTool(Checked):
    type: str
    name: Name | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Text(Checked):
    format: Format | None = None


class ResponsesRequest(Sampling):
    input: Annotated[list[Item], Field(min_length=1), BeforeValidator(_as_items)]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    tools: list[FlatTool] | None = None
    tool_choice: Any = None
    text: Text | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    metadata: dict[str, str] | None = None


def check_offered(given: ResponsesRequest) -> None:
    """Raise ApiError for what would need a server that keeps answers."""
    for name in ("previous_response_id", "conversation", "background"):
        if getattr(given, name):
            raise refused(
                f"'{name}' is not offered: this server keeps no answers; send the whole "
                "conversation as 'input'",
                name,
            )


def tools_of(given: ResponsesRequest) -> list[Tool] | None:
    """The functions, as chat completions have them."""
    if given.tools is None:
        return None
    found = []
    for i, tool in enumerate(given.tools):
        if tool.type != "function" or tool.name is None:
            raise refused(
                f"invalid 'tools[{i}]': functions are offered, not {tool.type!r}", f"tools[{i}]"
            )
        function = Function(
            name=tool.name, description=tool.description, parameters=tool.parameters
        )
        found.append(Tool(type="function", function=function))
    return found


def turns_of(given: ResponsesRequest) -> list[ChatTurn]:
    """The conversation. Calls in a row are one turn, with what was said before them."""
    turns = []
    if given.instructions:
        turns.append(ChatTurn(role="system", content=_parts(given.instructions)))
    for i, item in enumerate(given.input):
        where = f"input[{i}]"
        if item.type == "message":
            turns.append(_message(item, where))
        elif item.type == "function_call":
            _add_call(turns, item, where)
        elif item.type == "function_call_output":
            if item.call_id is None or item.output is None:
                raise refused(f"invalid '{where}': 'call_id' and 'output' are missing", where)
            text = text_of(item.output, f"{where}.output")
            turns.append(ChatTurn(role="tool", tool_call_id=item.call_id, content=_parts(text)))
        elif item.type != "reasoning":  # thoughts are not given back to a model
            raise refused(f"invalid '{where}': {item.type!r} is not offered", where)
    if not turns:
        raise refused("'input' has no message", "input")
    return _in_order(turns)


def _message(item: Item, where: str) -> ChatTurn:
    if item.role is None or item.content is None:
        raise refused(f"invalid '{where}': a message has a 'role' and a 'content'", where)
    return ChatTurn(role=item.role, content=_parts(text_of(item.content, where)))


def _add_call(turns: list[ChatTurn], item: Item, where: str) -> None:
    if item.name is None or item.arguments is None:
        raise refused(f"invalid '{where}': a call has a 'name' and 'arguments'", where)
    call = Call(id=item.call_id, function=Called(name=item.name, arguments=item.arguments))
    if not turns or turns[-1].role != "assistant":
        turns.append(ChatTurn(role="assistant"))
    turns[-1].tool_calls = [*(turns[-1].tool_calls or ()), call]


def _in_order(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """`turns` with one system turn at the beginning, where templates expect it."""
    system = ("system", "developer")
    said = [text_of(turn.content, "input") for turn in turns if turn.role in system]
    others = [turn for turn in turns if turn.role not in system]
    if not said:
        return others
    return [ChatTurn(role="system", content=_parts("\n\n".join(said))), *others]


def _parts(text: str) -> list[Part]:
    return [Part(type="text", text=text)]
