"""A target whose layers are elsewhere, as far as no server is needed to tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program import run_program

import spec_cpu
from spec_cpu.costs.cache import CostCache
from spec_cpu.errors import RemoteError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.rpc.servers import Server

ADDRESS = "127.0.0.1:50052"
SERVERS = st.lists(
    st.builds(Server, st.sampled_from("abc"), st.integers(1, 3)), max_size=3, unique=True
)


@pytest.fixture
def context(tiny_target: Path) -> Any:
    with Model(tiny_target) as model, Context(model, n_ctx=64, n_seq=2, threads=1) as context:
        yield context


class Lost:
    """Machines that were there, and are not."""

    def check(self) -> None:
        raise RemoteError("lost")

    def close(self) -> None: ...


def test_what_a_pass_gives_without_its_machines_is_not_handed_out(context: Context) -> None:
    sequence = KVSequence(context, branches=[1])
    sequence.score([1, 2])
    context.model.remote = Lost()  # type: ignore[assignment]
    for use in (
        lambda: sequence.score([3]),
        lambda: sequence.score_tree(3, [4, 5], [-1, -1]),
        lambda: sequence.prefill([3, 4]),
        sequence.state,
    ):
        with pytest.raises(RemoteError):
            use()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SERVERS, SERVERS)
def test_costs_are_kept_for_each_list_of_machines(
    context: Context, one: Sequence[Server], other: Sequence[Server]
) -> None:
    def files(servers: Sequence[Server]) -> tuple[Path, Path]:
        context.model.servers = tuple(servers)
        cache = CostCache(context, None)
        return cache.record, cache._path(0)

    same = one == other
    assert [a == b for a, b in zip(files(one), files(other), strict=True)] == [same, same]


class TestWithoutRpc:
    """llama.cpp was built without it: one line says how to build it, before anything is fetched."""

    @pytest.fixture(autouse=True)
    def stock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(llama_cpp, "llama_supports_rpc", lambda: False)

    def test_load(self) -> None:
        with pytest.raises(RemoteError, match="CMAKE_ARGS=-DGGML_RPC=on pip install "):
            spec_cpu.load("no such model", rpc=ADDRESS)

    @pytest.mark.parametrize("command", ["run", "chat", "plan", "bench"])
    def test_commands(
        self, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        prompt = ["Why?"] if command == "run" else []
        code = run_program(monkeypatch, command, *prompt, "-m", "no such model", "--rpc", ADDRESS)
        said = capsys.readouterr()
        assert (code, said.out) == (1, "")
        assert said.err.startswith(
            "spec-cpu: this llama-cpp-python was built without RPC, so --rpc"
        )
        assert said.err.endswith(f"llama-cpp-python=={llama_cpp.__version__}\n")
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "chat", "plan", "bench"])
def test_an_address_that_is_none_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, command, "--rpc", f"{ADDRESS},nas") == 2
    assert capsys.readouterr().err == (
        "spec-cpu: --rpc takes HOST:PORT, such as 192.168.1.20:50052, not 'nas'\n"
    )


def test_a_model_that_is_here_names_no_machines(
    tiny_target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "Why?", "-m", tiny_target, "-n", 2, "--json") == 0
    assert json.loads(capsys.readouterr().out)["servers"] == []
