"""The routes of the server, and what stands before all of them."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spec_cpu.errors import SpecCpuError
from spec_cpu.serve.http import chat, completions, embeddings, errors, info, responses
from spec_cpu.serve.http.errors import ApiError
from spec_cpu.serve.http.security import Guard
from spec_cpu.serve.http.service import Service, log

PAGE = Path(__file__).parents[1] / "page"
_POSTS = {
    "/v1/chat/completions": chat.post,
    "/v1/completions": completions.post,
    "/v1/responses": responses.post,
    "/v1/embeddings": embeddings.post,
}
_GETS = {
    "/v1/models": info.models,
    "/v1/models/{name:path}": info.model,
    "/health": info.health,
    "/metrics": info.metrics,
    "/props": info.props,
    "/spec-cpu/state": info.state,
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)


def make_app(service: Service) -> Starlette:
    """The server's application. What the engine and the settings are is up to the caller."""
    app = Starlette(
        routes=[
            *(Route(path, post, methods=["POST"]) for path, post in _POSTS.items()),
            *(Route(path, get, methods=["GET"]) for path, get in _GETS.items()),
            Mount("/", Page(directory=PAGE, html=True)),
        ],
        middleware=[
            Middleware(Journal, service),
            Middleware(
                CORSMiddleware,
                allow_origins=service.settings.cors_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["x-queue-place", "x-request-id", "retry-after"],
            ),
            Middleware(Guard, service.settings, open_paths(PAGE)),
        ],
        exception_handlers={
            ApiError: errors.on_api_error,
            SpecCpuError: errors.on_library_error,
            HTTPException: errors.on_http_error,
            ClientDisconnect: errors.on_leaving,
            Exception: errors.on_bug,
        },
    )
    app.state.service = service
    return app


def open_paths(page: Path) -> list[str]:
    """What needs no key: the server's health, and the files of the page."""
    files = (file for file in page.rglob("*") if file.is_file())
    return ["/health", "/", *(f"/{file.relative_to(page).as_posix()}" for file in files)]


class Page(StaticFiles):
    """The files of the page, which load nothing from elsewhere and stand in nobody's frame."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["Cache-Control"] = "no-cache"
        return response


class Journal:
    """Counts requests, writes a line for each into the log, and names it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        self._count += 1
        number, status = f"{self._service.created:x}-{self._count}", 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = number
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            method, path = scope["method"], _known(scope["path"])
            self._service.metrics.requests.labels(path, str(status)).inc()
            seconds = time.perf_counter() - start
            # What is only looked at, by a page or a monitor each second, would fill the log.
            level = logging.DEBUG if method == "GET" and status < 400 else logging.INFO
            log.log(level, "%s %s %s: %d in %.2f s", number, method, path, status, seconds)


def _known(path: str) -> str:
    """`path`, if it is one of ours: else anybody could fill the counters with names."""
    if path in _POSTS or path in _GETS:
        return path
    return "other"
