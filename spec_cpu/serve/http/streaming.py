"""What is sent bit by bit, and clients that go away before its end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from spec_cpu.serve.http.answers import Answers
from spec_cpu.serve.http.errors import CLIENT_GONE, ApiError, of_validation
from spec_cpu.serve.http.service import Service, log

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")

BODY_TIME = 60.0  # seconds that a client may take to send a request
DONE = "data: [DONE]\n\n"
WAITING = ": waiting\n\n"


def event(data: Mapping[str, Any], name: str | None = None) -> str:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def read(request: Request, service: Service, schema: type[Model]) -> Model:
    """The request's body, checked.

    Raises:
        ApiError: it is too long, takes too long, or is not what the schema says.
    """
    most = service.settings.max_body
    body = bytearray()
    with anyio.move_on_after(BODY_TIME) as limit:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise ApiError(413, f"the body has more than {most:,} bytes, the most that is read")
    if limit.cancelled_caught:
        raise ApiError(408, f"the body did not come within {BODY_TIME:.0f} seconds")
    if service.settings.log_prompts:
        log.info("asked: %s", body.decode("utf-8", "replace"))
    try:
        return schema.model_validate_json(bytes(body))
    except ValidationError as error:
        raise of_validation(error) from None


class EventStream(StreamingResponse):
    """Server-sent events of answers, which end with the connection."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], answers: Answers) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **place(answers)}
        super().__init__(self._safe(events), headers=headers)
        self._answers = answers

    async def _safe(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """`events`; what goes wrong among them is the last one."""
        try:
            async for one in events:
                yield one
        except ApiError as error:
            log.error("an answer failed: %s", error)
            yield event(error.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            await self.listen_for_disconnect(receive)
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                await self.stream_response(send)
                tasks.cancel_scope.cancel()
        finally:
            self._answers.close()


async def whole(
    request: Request, answers: Answers, collect: Callable[[], Awaitable[Response]]
) -> Response:
    """What `collect` makes of the answers, unless the client goes away: then they end."""
    response: Response | None = None

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    failed: ApiError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                response = await collect()
            except ApiError as error:
                failed = error
            tasks.cancel_scope.cancel()
    finally:
        answers.close()
    if failed is not None:
        raise failed
    if response is None:
        return Response(status_code=CLIENT_GONE)  # which nobody reads
    response.headers.update(place(answers))
    return response


def place(answers: Answers) -> dict[str, str]:
    return {"x-queue-place": str(answers.place)}
