"""Addresses of RPC servers: what is one, and one line for what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.errors import UsageError
from spec_cpu.rpc.servers import MOST, Server, parse_servers

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
HOSTS = NAMES | st.ip_addresses().map(str)
SERVERS = st.builds(Server, HOSTS, st.integers(1, 65535))


@given(st.lists(SERVERS, max_size=MOST, unique=True))
def test_a_list_is_read_as_it_is_written(servers: list[Server]) -> None:
    written = [str(server) for server in servers]
    assert parse_servers(written) == tuple(servers)
    if servers:
        assert parse_servers(", ".join(written)) == tuple(servers)


def test_none_is_an_empty_list() -> None:
    assert parse_servers(None) == parse_servers(()) == ()


@pytest.mark.parametrize(
    "bad",
    [
        "",
        " ",
        "host",
        "host:",
        ":50052",
        "host:port",
        "host:-1",
        "host:0",
        "host:65536",
        "host:999999",
        "http://host:50052",
        "host:50052/",
        "ho st:50052",
        "::1:50052",
        "[::1]",
        "hôst:٣",
    ],
)
def test_what_is_no_address_is_named(bad: str) -> None:
    for listed in (f"good:50052,{bad}", ["good:50052", bad], f"{bad},good:50052"):
        with pytest.raises(UsageError) as refused:
            parse_servers(listed)
        message = str(refused.value)
        assert "`rpc`" in message
        assert ascii(bad.strip()).strip("'") in message
        assert "\n" not in message


@given(SERVERS)
def test_a_server_is_named_once(server: Server) -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_servers([str(server), str(server)])


def test_there_are_not_too_many() -> None:
    with pytest.raises(UsageError, match="up to 14 servers, not 15"):
        parse_servers([f"host:{port}" for port in range(1, MOST + 2)])


@pytest.mark.parametrize("wrong", [50052, b"host:50052", [50052]])
def test_it_is_text(wrong: object) -> None:
    with pytest.raises(UsageError, match="`rpc`"):
        parse_servers(wrong)  # type: ignore[arg-type]
