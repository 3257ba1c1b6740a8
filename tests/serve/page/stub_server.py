"""A server that speaks the page's protocol and says what a test wants it to say."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from spec_cpu.serve.http.app import PAGE, Page

MODEL = "stub-1b-q4_0.gguf"
VERIFY = [1.0, 1.06, 1.1, 1.16, 1.24, 1.3, 1.33, 1.37, 1.6, 1.75, 1.9, 2.05]
_WORDS = re.compile(r"\s*[\w']+|\s*[^\w\s]+|\s+")
_ORIGINS = ("plain", "accepted", "accepted", "correction", "accepted", "accepted", "bonus")
_SOURCES = ("ngram", "model", "eagle", "recycled")


@dataclass
class Script:
    """What the server says next, and how.

    Attributes:
        hold_at: before this step it waits until `Stub.resume`. `break_at`: before this step the
            connection ends. `refuse`: a status and a message in place of an answer.
        read: steps in which the prompt is read. `place`: in the queue.
    """

    text: str = "The sky is blue because air scatters blue light more than red light."
    thoughts: str = ""
    finish: str = "stop"
    hold_at: int | None = None
    break_at: int | None = None
    refuse: tuple[int, str] | None = None
    error_at: int | None = None
    read: int = 0
    place: int = 0


@dataclass
class Stub:
    """The server, in a thread of its own."""

    port: int = 0
    key: str | None = None
    scripts: list[Script] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    shares: list[dict[str, int]] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    _resume: threading.Event = field(default_factory=threading.Event)
    _vanished: threading.Event = field(default_factory=threading.Event)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Listen; where it listened before, if it did."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._resume.clear()
        self._vanished.clear()
        config = uvicorn.Config(
            self._app(),
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=0,
            ws="none",
        )
        self._server = uvicorn.Server(config)
        run = self._server.run
        self._thread = threading.Thread(target=run, args=([listener],), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Vanish, in the middle of whatever it says."""
        if self._server and self._thread:
            self._server.should_exit = True
            self._server.force_exit = True
            self._vanished.set()
            self._thread.join()
            self._server = None

    def reset(self) -> None:
        """Forget what it was to say, and what it was asked. It listens again, if it did not."""
        self.key = None
        self.scripts.clear()
        self.requests.clear()
        self.shares.clear()
        self.cancelled.clear()
        self._resume.clear()
        if self._server is None:
            self.start()

    def resume(self) -> None:
        """Go on with what was held."""
        self._resume.set()

    def say(self, text: str, **how: Any) -> None:
        """The next answer. After the last one comes a default one."""
        self.scripts.append(Script(text, **how))

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/spec-cpu/state", self._state),
                Route("/props", self._props),
                Route("/health", self._health),
                Mount("/checks", Page(directory=Path(__file__).parent)),
                Mount("/", Page(directory=PAGE, html=True)),
            ]
        )

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _models(self, request: Request) -> Response:
        found = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        return self._checked(request) or JSONResponse(found)

    async def _props(self, request: Request) -> Response:
        sampling = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
        found = {"model": MODEL, "sampling": sampling, "max_tokens": None}
        return self._checked(request) or JSONResponse(found)

    async def _state(self, request: Request) -> Response:
        width = sum(share["rows"] for share in self.shares) or 5
        state = {
            "model": MODEL,
            "slots": 4,
            "active": len(self.shares),
            "waiting": 0,
            "context": 4096,
            "verify": VERIFY,
            "width": width,
            "shares": self.shares,
            "tokens": 1234,
            "drafted": 900,
            "accepted": 600,
            "cycles": 700,
            "by_source": {
                "ngram": {"drafted": 412, "accepted": 301},
                "model": {"drafted": 350, "accepted": 218},
                "eagle": {"drafted": 138, "accepted": 81},
            },
        }
        return self._checked(request) or JSONResponse(state)

    def _checked(self, request: Request) -> Response | None:
        if self.key is None or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return _error(401, "a key is missing")

    async def _chat(self, request: Request) -> Response:
        if refused := self._checked(request):
            return refused
        self.requests.append(await request.json())
        script = self.scripts.pop(0) if self.scripts else Script()
        if script.refuse:
            return _error(*script.refuse)
        headers = {"x-queue-place": str(script.place)}
        return StreamingResponse(self._stream(script), headers=headers, media_type=_EVENTS)

    async def _stream(self, script: Script) -> AsyncIterator[str]:
        whole = False
        try:
            yield ": hello\n\n"
            yield _event({"delta": {"role": "assistant", "content": ""}})
            for n in range(script.read):
                reading = {"done": 100 * (n + 1), "total": 100 * script.read}
                yield _event({"delta": {}}, {**_counts([]), "reading": reading})
            for i, tokens in enumerate(_steps(script.text)):
                if i == script.hold_at:
                    await self._held()
                if i == script.break_at:
                    raise ConnectionResetError
                if i == script.error_at:
                    yield _data({"error": {"message": "the model ran out of memory"}})
                    whole = True
                    return
                if i == 0 and script.thoughts:
                    yield _event({"delta": {"reasoning_content": script.thoughts}})
                text = "".join(token["text"] for token in tokens)
                yield _event({"delta": {"content": text}}, _counts(tokens))
            end = {**_counts([]), "summary": _summary(script)}
            yield _event({"delta": {}, "finish_reason": script.finish}, end)
            yield _data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 20}})
            yield "data: [DONE]\n\n"
            whole = True
        finally:
            if not whole:
                self.cancelled.set()

    async def _held(self) -> None:
        while not self._resume.is_set():
            if self._vanished.is_set():
                raise ConnectionResetError
            await asyncio.sleep(0.005)
        self._resume.clear()


_EVENTS = "text/event-stream"


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "stub"}}, status)


def _data(chunk: dict[str, Any]) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


def _event(choice: dict[str, Any], ours: dict[str, Any] | None = None) -> str:
    said = {"index": 0, "finish_reason": None, **choice}
    return _data({"choices": [said], **({"spec_cpu": ours} if ours else {})})


def _steps(text: str) -> Iterator[list[dict[str, Any]]]:
    """Tokens as they come: one, then three, then two, ..."""
    tokens = [_token(i, word) for i, word in enumerate(_WORDS.findall(text))]
    at, sizes = 0, (1, 3, 2, 4)
    while at < len(tokens):
        size = sizes[at % len(sizes)]
        yield tokens[at : at + size]
        at += size


def _token(i: int, text: str) -> dict[str, Any]:
    origin = _ORIGINS[i % len(_ORIGINS)]
    sources = [_SOURCES[(i // 2) % len(_SOURCES)]] if origin == "accepted" else []
    others = [[" other", 0.31], [" word", 0.04]] if i % 3 == 0 else []
    return {"id": i, "text": text, "origin": origin, "sources": sources, "alternatives": others}


def _counts(tokens: list[dict[str, Any]]) -> dict[str, Any]:
    stayed = sum(token["origin"] == "accepted" for token in tokens)
    return {"tokens": tokens, "drafted": 2 * stayed, "accepted": stayed, "id": 7}


def _summary(script: Script) -> dict[str, Any]:
    return {
        "tokens": len(_WORDS.findall(script.text)),
        "seconds": 0.5,
        "tokens_per_second": 41.7,
        "plain_tokens_per_second": 20.1,
        "speedup": 2.07,
        "tokens_per_step": 2.4,
        "drafted": 40,
        "accepted": 30,
        "by_source": {},
        "seed": 1,
        "finish": script.finish,
    }
