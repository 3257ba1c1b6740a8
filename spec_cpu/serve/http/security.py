"""Who may ask: keys, and what a page of somebody else's in a browser of this machine cannot do.

Without a key everybody on this machine may ask, and a browser asks for whatever page it shows. A
page elsewhere cannot read answers without CORS. It can send a form, though: so bodies have to be
JSON, which no form is, and for which a browser asks first. And a name of its own can be made to
point at this machine (DNS rebinding), which makes it a page of ours to the browser: so the host
that is asked for has to be this machine's own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from spec_cpu.serve.http.errors import ApiError
from spec_cpu.serve.http.settings import HttpSettings, is_loopback

_SCHEME = "bearer"


class Guard:
    """Lets nobody through who may not ask."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, open_paths: Sequence[str]) -> None:
        """`open_paths`: need no key; a `/` at the end stands for all below it."""
        self._app = app
        self._digests = [_digest(key) for key in settings.api_keys]
        self._host = settings.host.lower()
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except ApiError as error:
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._digests:
            self._check_key(headers.get("authorization", ""), scope["path"])
        else:
            self._check_host(headers.get("host", ""))
        if scope["method"] == "POST":
            _check_json(headers.get("content-type", ""))

    def _check_host(self, host: str) -> None:
        name = _without_port(host).lower()
        if not (is_loopback(name) or name == self._host):
            raise ApiError(
                403,
                f"this server answers at {self._host} alone, not at {name!r}: give it an API key "
                "to be reached by other names",
                code="wrong_host",
            )

    def _check_key(self, authorization: str, path: str) -> None:
        if path in self._open:
            return
        scheme, _, key = authorization.partition(" ")
        given = _digest(key.strip())
        # All of them are compared, so that the time tells nothing.
        same = [hmac.compare_digest(given, digest) for digest in self._digests]
        if scheme.lower() != _SCHEME or not any(same):
            problem = "that is not a key of this server" if authorization else "a key is missing"
            raise ApiError(
                401,
                f"{problem}: send the header Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _check_json(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "send JSON, with the header Content-Type: application/json")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
