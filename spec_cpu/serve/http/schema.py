"""What requests hold, as pydantic checks it. What is not named here is ignored, as OpenAI does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Checked(BaseModel):
    """Types are taken as they are: a number in quotes is none."""

    model_config = ConfigDict(extra="ignore", strict=True)


def _in_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_part(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class Part(Checked):
    """A part of a turn's content, of any of the APIs."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content = Annotated[list[Part], BeforeValidator(_as_part)]
Stops = Annotated[list[str], BeforeValidator(_in_list)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class Called(Checked):
    name: str
    arguments: str


class Call(Checked):
    """A call that the assistant made earlier."""

    id: str | None = None
    function: Called


class ChatTurn(Checked):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class Function(Checked):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Checked):
    type: Literal["function"]
    function: Function


class StreamOptions(Checked):
    include_usage: bool | None = None


class Prediction(Checked):
    """A text that much of the answer will repeat."""

    type: Literal["content"]
    content: Content


class Format(Checked):
    type: str


class Ours(Checked):
    """What the page asks for beside OpenAI's own."""

    tokens: bool = False


class Sampling(Checked):
    """How tokens are drawn: OpenAI's parameters, and llama.cpp's."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None


class Completion(Sampling):
    """What /v1/chat/completions and /v1/completions have in common."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Stops | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    max_tokens: int | None = None
    response_format: Format | None = None


class ChatRequest(Completion):
    messages: Annotated[list[ChatTurn], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    prediction: Prediction | None = None
    spec_cpu: Ours | None = None


class CompletionRequest(Completion):
    prompt: Any
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class EmbeddingRequest(Checked):
    input: Any
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
