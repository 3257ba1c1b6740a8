"""Answers under way to one HTTP request: from the engine's thread to the server's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio

from spec_cpu.errors import SpecCpuError
from spec_cpu.serve.engine.engine import Handle
from spec_cpu.serve.engine.request import Ended, Event, Failed, Request
from spec_cpu.serve.http.errors import closing, of_library
from spec_cpu.serve.http.service import Service, log

KEEP_ALIVE = 15.0  # seconds without an event after which a client is told that it is waited for

Numbered = tuple[int, Event]


class Answers:
    """Several requests to the engine, whose events come as one stream.

    Attributes:
        place: of the first of them in the queue, when it was taken; 0: none was before it.
        ids: their numbers, as the engine has them.
    """

    def __init__(self, service: Service, requests: Sequence[Request]) -> None:
        """Submit them all, or none.

        Raises:
            ApiError: the engine does not take them.
        """
        if service.closing:
            raise closing()
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Numbered] = asyncio.Queue()
        self._watches = [service.metrics.watch() for _ in requests]
        self._deadline = time.monotonic() + service.settings.max_time
        self._handles: list[Handle] = []
        self._open = len(requests)
        try:
            for i, request in enumerate(requests):
                deliver = partial(self._deliver, i)
                self._handles.append(service.engine.submit(request, deliver))
        except SpecCpuError as error:
            self.close()
            raise (closing() if service.closing else of_library(error)) from error
        self.place = self._handles[0].place
        self.ids = [handle.id for handle in self._handles]

    def _deliver(self, answer: int, event: Event) -> None:
        """Called in the engine's thread."""
        with contextlib.suppress(RuntimeError):  # the server's loop ended
            self._loop.call_soon_threadsafe(self._events.put_nowait, (answer, event))

    def close(self) -> None:
        """End what is still under way. A second call does nothing."""
        for handle in self._handles:
            handle.cancel()

    async def events(self) -> AsyncIterator[Numbered | None]:
        """Each event with the number of its answer, until all ended. None: still waiting.

        Raises:
            ApiError: one of them failed.
        """
        while self._open:
            numbered = await self._next()
            if numbered is None:
                yield None
                continue
            answer, event = numbered
            self._watches[answer].see(event)
            if isinstance(event, Failed):
                raise of_library(event.error) from event.error
            if isinstance(event, Ended):
                self._open -= 1
                self._log(event)
            yield numbered

    async def _next(self) -> Numbered | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            self.close()
        with anyio.move_on_after(min(KEEP_ALIVE, left) if left > 0 else KEEP_ALIVE):
            return await self._events.get()
        return None

    def _log(self, ended: Ended) -> None:
        log.info(
            "%d tokens of prompt (%d known), %d of answer: %s",
            ended.prompt_tokens,
            ended.reused_tokens,
            ended.stats.tokens,
            ended.finish,
        )
