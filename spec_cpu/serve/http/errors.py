"""Errors as OpenAI's clients know them: a status, and an object that says what was wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from spec_cpu.errors import ContextError, SpecCpuError, UsageError
from spec_cpu.serve.engine.engine import QueueFullError

_PARAMETER = re.compile(r"`([a-z_]+)`")
CLIENT_GONE = 499  # what servers write into their logs for it
_NAMES = {"penalty_last_n": "repeat_last_n"}
"""Parameters of requests that the library calls otherwise."""


class ApiError(Exception):
    """A request that is not answered, or not to its end."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        return JSONResponse(self.body, self.status, headers=self.headers)


def refused(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that makes no sense."""
    return ApiError(400, message, param=param, code=code)


def closing() -> ApiError:
    return ApiError(503, "the server is closing", kind="server_error", headers={"Retry-After": "5"})


def of_validation(error: ValidationError) -> ApiError:
    """What pydantic found first."""
    found = error.errors(include_url=False, include_input=False)[0]
    if found["type"] == "json_invalid":
        return refused(f"the body is not JSON: {found['msg']}")
    param = ""
    for part in found["loc"]:
        param += f"[{part}]" if isinstance(part, int) else f".{part}" if param else str(part)
    if found["type"] == "missing":
        return refused(
            f"missing required parameter: '{param}'", param, "missing_required_parameter"
        )
    return refused(f"invalid '{param}': {found['msg']}", param or None, "invalid_value")


def of_library(error: SpecCpuError) -> ApiError:
    """What the engine, or what prepares its work, refused or could not do."""
    message = _PARAMETER.sub(lambda found: f"'{_NAMES.get(found[1], found[1])}'", str(error))
    if isinstance(error, QueueFullError):
        seconds = str(max(1, round(error.retry_after)))
        return ApiError(503, message, kind="server_error", headers={"Retry-After": seconds})
    if isinstance(error, ContextError):
        return refused(message, code="context_length_exceeded")
    if isinstance(error, UsageError):
        named = _PARAMETER.search(str(error))
        param = _NAMES.get(named[1], named[1]) if named else None
        return refused(message, param, "invalid_value" if named else None)
    return ApiError(500, message, kind="server_error")


async def on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def on_library_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SpecCpuError)
    return of_library(error).response()


async def on_leaving(_request: Request, error: Exception) -> Response:
    """A client that left in the midst of its request: nobody reads this but the log."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=CLIENT_GONE)


async def on_http_error(request: Request, error: Exception) -> Response:
    """No such path, or no such method there."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}"
    return ApiError(error.status_code, message, headers=error.headers).response()


async def on_bug(_request: Request, _error: Exception) -> Response:
    """Anything that was not foreseen; its traceback is in the log, and nobody else's business."""
    return ApiError(500, "the server failed: its log says why", kind="server_error").response()
