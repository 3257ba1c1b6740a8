"""The addresses of llama.cpp's RPC servers, as a person gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from spec_cpu.arguments import texts
from spec_cpu.errors import UsageError

MOST = 14  # devices: llama.cpp's scheduler has 16 places, two of them for what computes here

_ADDRESS = re.compile(r"(\[[^][\s]+\]|[^][:,\s]+):([0-9]{1,5})")
_MOST_PORT = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Server:
    """Where an RPC server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it was given."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(given: str | Iterable[str] | None) -> tuple[Server, ...]:
    """The servers of a list of addresses, in its order; none for None.

    Args:
        given: HOST:PORT each, or several with commas between. An IPv6 address stands in brackets.

    Raises:
        UsageError: one is no address, or is named twice, or there are too many; says which.
    """
    servers: list[Server] = []
    for text in texts("rpc", given):
        for address in text.split(","):
            server = _parse(address.strip())
            if server in servers:
                raise UsageError(f"`rpc` names {server} twice: a server serves one at a time")
            servers.append(server)
    if len(servers) > MOST:
        raise UsageError(f"`rpc` takes up to {MOST} servers, not {len(servers)}")
    return tuple(servers)


def _parse(address: str) -> Server:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise UsageError(f"`rpc` takes HOST:PORT, such as 192.168.1.20:50052, not {address!a}")
    host, port = found[1].strip("[]"), int(found[2])
    if not 1 <= port <= _MOST_PORT:
        raise UsageError(f"`rpc` takes ports from 1 to {_MOST_PORT:,}, not {port} ({address})")
    return Server(host, port)
