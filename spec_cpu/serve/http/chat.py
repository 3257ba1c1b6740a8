"""/v1/chat/completions: the next turn of a conversation."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spec_cpu.serve.engine.request import Delta, Ended, Reading
from spec_cpu.serve.engine.request import Request as EngineRequest
from spec_cpu.serve.http import asked, logprobs, ours
from spec_cpu.serve.http.answers import Answers
from spec_cpu.serve.http.call_object import Said
from spec_cpu.serve.http.choice import (
    CallBegan,
    Choice,
    Shown,
    Step,
    Thought,
    complete,
    steps,
    usage,
)
from spec_cpu.serve.http.errors import refused
from spec_cpu.serve.http.prompts import Choosable, Prompt, choosable, read_turns
from spec_cpu.serve.http.schema import ChatRequest
from spec_cpu.serve.http.service import Service, service_of
from spec_cpu.serve.http.streaming import DONE, WAITING, EventStream, event, read, whole


async def post(request: Request) -> Response:
    """Answer a conversation."""
    service = service_of(request)
    given = await read(request, service, ChatRequest)
    prepared = await anyio.to_thread.run_sync(_prepare, service, given)
    answers = Answers(service, prepared.requests)
    chat = _Chat(service, given, prepared)
    if given.stream:
        return EventStream(chat.stream(answers), answers)
    return await whole(request, answers, lambda: chat.collect(answers))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What the engine is asked, and what its answers are split by."""

    prompt: Prompt
    may_call: Choosable
    requests: Sequence[EngineRequest]


def _prepare(service: Service, given: ChatRequest) -> _Prepared:
    asked.check_format(given.response_format, "response_format")
    if given.top_logprobs is not None and not given.logprobs:
        raise refused("'top_logprobs' is only allowed with 'logprobs'", "top_logprobs")
    may_call = choosable(service, given.tools, given.tool_choice)
    prompt = read_turns(service, given.messages, may_call)
    limit = given.max_completion_tokens
    requests = asked.requests(
        service,
        given,
        prompt,
        n=given.n or 1,
        max_tokens=given.max_tokens if limit is None else limit,
        stop=given.stop,
        prediction=given.prediction,
        logprobs=(given.top_logprobs or 0) if given.logprobs else None,
        alternatives=given.spec_cpu is not None and given.spec_cpu.tokens,
    )
    return _Prepared(prompt, may_call, requests)


class _Chat:
    """The answer to one request, in the forms of chat completions."""

    def __init__(self, service: Service, given: ChatRequest, prepared: _Prepared) -> None:
        self._vocab = service.engine.model.vocab
        self._logprobs = bool(given.logprobs)
        self._tokens = given.spec_cpu is not None and given.spec_cpu.tokens
        options = given.stream_options
        self._usage = options is not None and bool(options.include_usage)
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": service.settings.name,
        }
        prompt = prepared.prompt
        self._choices = [
            Choice(
                self._vocab,
                prepared.may_call,
                service.call_format,
                thinking=prompt.thinking,
                begun=prompt.begun,
            )
            for _ in prepared.requests
        ]

    async def collect(self, answers: Answers) -> Response:
        """All of it at once."""
        await complete(answers, self._choices)
        return JSONResponse(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [self._choice(i, choice) for i, choice in enumerate(self._choices)],
                "usage": usage(self._choices),
            }
        )

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": choice.said or (None if choice.called else ""),
            "refusal": None,
        }
        if choice.thought:
            message["reasoning_content"] = choice.thought
        if choice.called:
            message["tool_calls"] = [
                {
                    "id": one.id,
                    "type": "function",
                    "function": {"name": one.name, "arguments": one.arguments},
                }
                for one in choice.called
            ]
        content = logprobs.chat(self._vocab, choice.tokens)
        return {
            "index": index,
            "message": message,
            "logprobs": {"content": content, "refusal": None} if self._logprobs else None,
            "finish_reason": choice.finish_reason,
        }

    async def stream(self, answers: Answers) -> AsyncIterator[str]:
        """A chunk for each thing that is shown."""
        for i in range(len(self._choices)):
            yield self._chunk(i, {"role": "assistant", "content": ""})
        async for added in steps(answers, self._choices):
            if added is None:
                yield WAITING
                continue
            i, what, step = added
            if isinstance(what, Delta | Ended) and step is not None:
                told = self._told(answers.ids[i], what, step)
                ended = isinstance(what, Ended)
                for chunk in self._chunks(i, step, None if ended else told):
                    yield chunk
                if ended:
                    yield self._chunk(i, {}, told, finish=self._choices[i].finish_reason)
            elif isinstance(what, Reading) and self._tokens:
                yield self._chunk(i, {}, ours.of_reading(answers.ids[i], what))
        if self._usage:
            yield event({**self._chunk_head, "choices": [], "usage": usage(self._choices)})
        yield DONE

    def _told(self, number: int, what: Delta | Ended, step: Step) -> dict[str, Any] | None:
        """What is told of the tokens of a step, where that was asked for."""
        if not self._tokens:
            return None
        if isinstance(what, Delta):
            return ours.of_delta(self._vocab, number, what, step.tokens)
        return ours.of_end(self._vocab, number, what, step.tokens)

    def _chunks(self, index: int, step: Step, told: dict[str, Any] | None) -> list[str]:
        """Of one step; the last of them has what is told of its tokens."""
        deltas = [_delta(shown) for shown in step.shown]
        if not deltas and (told is not None or (self._logprobs and step.texts)):
            deltas = [{}]
        last = len(deltas) - 1
        return [
            self._chunk(index, delta, told if i == last else None, step=step if i == last else None)
            for i, delta in enumerate(deltas)
        ]

    @property
    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        told: dict[str, Any] | None = None,
        *,
        step: Step | None = None,
        finish: str | None = None,
    ) -> str:
        probs = None
        if self._logprobs and step is not None:
            probs = {"content": logprobs.chat(self._vocab, step.texts), "refusal": None}
        choice = {"index": index, "delta": delta, "logprobs": probs, "finish_reason": finish}
        chunk = {**self._chunk_head, "choices": [choice]}
        if self._usage:
            chunk["usage"] = None
        if told is not None:
            chunk["spec_cpu"] = told
        return event(chunk)


def _delta(shown: Shown) -> dict[str, Any]:
    if isinstance(shown, Said):
        return {"content": shown.text}
    if isinstance(shown, Thought):
        return {"reasoning_content": shown.text}
    if isinstance(shown, CallBegan):
        function = {"name": shown.name, "arguments": ""}
        began = {"index": shown.index, "id": shown.id, "type": "function", "function": function}
        return {"tool_calls": [began]}
    return {"tool_calls": [{"index": shown.index, "function": {"arguments": shown.arguments}}]}
