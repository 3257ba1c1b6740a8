"""/v1/responses: an answer as a list of items, whole or as a stream of typed events."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spec_cpu.serve.engine.request import Request as EngineRequest
from spec_cpu.serve.http import asked
from spec_cpu.serve.http.answers import Answers
from spec_cpu.serve.http.choice import Choice, steps
from spec_cpu.serve.http.errors import ApiError
from spec_cpu.serve.http.prompts import Choosable, Prompt, choosable, read_turns
from spec_cpu.serve.http.responses_input import (
    ResponsesRequest,
    check_offered,
    tools_of,
    turns_of,
)
from spec_cpu.serve.http.responses_output import Items, Reply
from spec_cpu.serve.http.service import Service, service_of
from spec_cpu.serve.http.streaming import WAITING, EventStream, event, read, whole

_LOGPROBS = "message.output_text.logprobs"


async def post(request: Request) -> Response:
    """Answer a conversation."""
    service = service_of(request)
    given = await read(request, service, ResponsesRequest)
    wanted, prompt, may_call = await anyio.to_thread.run_sync(_prepare, service, given)
    answers = Answers(service, [wanted])
    choice = Choice(
        service.engine.model.vocab,
        may_call,
        service.call_format,
        thinking=prompt.thinking,
        begun=prompt.begun,
    )
    reply = Reply(f"resp_{secrets.token_hex(24)}", service.settings.name, given, wanted)
    items = Items(service.engine.model.vocab)
    if given.stream:
        return EventStream(_stream(answers, choice, items, reply), answers)
    return await whole(request, answers, lambda: _collect(answers, choice, items, reply))


def _prepare(service: Service, given: ResponsesRequest) -> tuple[EngineRequest, Prompt, Choosable]:
    check_offered(given)
    asked.check_format(given.text.format if given.text else None, "text.format")
    may_call = choosable(service, tools_of(given), given.tool_choice)
    prompt = read_turns(service, turns_of(given), may_call)
    logprobs = given.top_logprobs
    if logprobs is None and _LOGPROBS in (given.include or ()):
        logprobs = 0
    (wanted,) = asked.requests(
        service, given, prompt, max_tokens=given.max_output_tokens, stop=None, logprobs=logprobs
    )
    return wanted, prompt, may_call


async def _collect(answers: Answers, choice: Choice, items: Items, reply: Reply) -> Response:
    """All of it at once."""
    async for added in steps(answers, [choice]):
        if added is not None and (step := added[2]) is not None:
            list(items.add(step))
    list(items.close(complete=choice.finish_reason != "length"))
    return JSONResponse(reply.ended(items.done, choice))


async def _stream(
    answers: Answers, choice: Choice, items: Items, reply: Reply
) -> AsyncIterator[str]:
    """Typed events, each with its number."""
    number = 0

    def numbered_event(data: dict[str, object]) -> str:
        nonlocal number
        number += 1
        return event({**data, "sequence_number": number - 1}, str(data["type"]))

    for name in ("created", "in_progress"):
        yield numbered_event({"type": f"response.{name}", "response": reply.begun()})
    try:
        async for added in steps(answers, [choice]):
            if added is None:
                yield WAITING
            elif (step := added[2]) is not None:
                for data in items.add(step):
                    yield numbered_event(data)
    except ApiError as error:
        yield numbered_event({"type": "response.failed", "response": reply.failed(error)})
        return
    for data in items.close(complete=choice.finish_reason != "length"):
        yield numbered_event(data)
    ended = reply.ended(items.done, choice)
    yield numbered_event({"type": f"response.{ended['status']}", "response": ended})
