"""The server as a program: it listens, and ends in order."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from spec_cpu.errors import UsageError
from spec_cpu.serve.http.app import make_app
from spec_cpu.serve.http.service import Service

_LAST_WORDS = 2.0  # seconds for what is left to be sent once all answers ended


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections can come to.

    Raises:
        UsageError: the address is none of this machine, or is in use.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen at {host}, port {port} ({reason}): give another `host` or `port`"
        ) from None


def address(listening: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    service: Service, listening: socket.socket, grace: float, notify: Callable[[str], None]
) -> bool:
    """Answer until the process is told to end (Ctrl-C, SIGTERM); then close the engine.

    The first time, answers have `grace` seconds to end by themselves; the second, none.

    Args:
        notify: told what happens then.

    Returns:
        True if it ended in order, False if it was told twice.
    """
    config = uvicorn.Config(
        make_app(service),
        access_log=False,
        log_config=None,
        ws="none",
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=round(grace + _LAST_WORDS),
    )
    server = _Server(config, service, grace, notify)
    try:
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        server.close_engine()
    return not server.force_exit


class _Server(uvicorn.Server):
    """Ends the engine's answers first, so that each client gets the end of its own."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        grace: float,
        notify: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._service = service
        self._grace = grace
        self._notify = notify
        self._closing: list[threading.Thread] = []

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end. It is not raised again once all has ended, as uvicorn would."""
        self._service.closing = True
        if not self.should_exit:
            self.should_exit = True
            self._close(self._grace)
        else:
            self.force_exit = True
            self._close(0.0)

    def _close(self, grace: float) -> None:
        # In a thread of its own: it waits, and this one may be in the midst of asking the engine.
        thread = threading.Thread(target=self._end_answers, args=[grace])
        thread.start()
        self._closing.append(thread)

    def _end_answers(self, grace: float) -> None:
        engine = self._service.engine
        if grace and engine.state.active:
            self._notify(f"ending: answers have {grace:g} s, or none at a second Ctrl-C")
        engine.close(grace)

    def close_engine(self) -> None:
        """Wait until the engine is closed."""
        self._service.closing = True
        self._service.engine.close()
        for thread in self._closing:
            thread.join()
