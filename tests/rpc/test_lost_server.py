"""Two RPC servers on this machine: what they compute, and what is left when one of them dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
import tiny
import tiny_head
from rpc_server import RunningServer, needs_rpc

import spec_cpu
from spec_cpu.errors import RemoteError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.serve.engine.loading import load_engine
from spec_cpu.serve.engine.request import Delta, Ended, Event, Failed, Request

pytestmark = [needs_rpc, pytest.mark.slow]

PROMPT = "the quick brown fox, the quick brown fox, the quick"
GREEDY = spec_cpu.SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def layered(models: Path) -> Path:
    """A tiny model with a layer for each server."""
    return tiny.write_llama(models / "layered.gguf", n_vocab=320, n_ctx=2048, scale=3, n_layer=4)


def addresses(servers: list[RunningServer]) -> list[str]:
    return [str(server.address) for server in servers]


def loaded(
    model: Path, servers: list[RunningServer], draft: Path | str = "none"
) -> spec_cpu.Session:
    return spec_cpu.load(
        model, draft, threads=1, ctx=512, sampling=GREEDY, rpc=addresses(servers), k=3
    )


def test_rows_trees_and_hidden_states_are_those_of_this_machine(
    layered: Path, running: list[RunningServer]
) -> None:
    def computed(servers: list[RunningServer]) -> Iterator[np.ndarray]:
        with (
            Model(layered, servers=[server.address for server in servers]) as model,
            Context(model, n_ctx=256, n_seq=8, threads=1, hidden=True) as context,
        ):
            sequence = KVSequence(context, branches=range(1, 8))
            yield sequence.score([5, 6, 7]).copy()
            yield sequence.score_tree(8, [9, 10, 11, 12], [-1, -1, 0, 1]).copy()
            yield sequence.hidden([1, 3]).copy()
            sequence.keep([1, 3])
            yield sequence.score([13]).copy()
            saved, tokens = sequence.state(), list(sequence.tokens)
            sequence.truncate(0)
            assert sequence.set_state(saved, tokens)
            yield sequence.score([14]).copy()

    for here, there in zip(computed([]), computed(running), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draft", ["ngram", "model", "head"])
def test_what_drafts_stays_here(
    draft: str, tiny_target: Path, tiny_draft: Path, tmp_path: Path, running: list[RunningServer]
) -> None:
    drafts: dict[str, Path | str] = {"ngram": "ngram", "model": tiny_draft}
    if draft == "head":
        drafts["head"] = tiny_head.write_head(tmp_path / "head.gguf", tiny_target)
    with loaded(tiny_target, running) as plain:
        expected = plain.answer(PROMPT, max_tokens=40, ignore_eos=True)
    with loaded(tiny_target, running, drafts[draft]) as session:
        assert session.answer(PROMPT, max_tokens=40, ignore_eos=True) == expected
        assert session.stats.drafted


@pytest.mark.parametrize("dies", [0, 1])
def test_an_answer_ends_with_an_error_and_the_process_lives_on(
    dies: int, layered: Path, running: list[RunningServer]
) -> None:
    with loaded(layered, running, "ngram") as session:
        steps = session.generate(PROMPT, max_tokens=400, ignore_eos=True)
        said = "".join(next(steps).text for _ in range(5))
        lost = running[dies]
        lost.kill()
        with pytest.raises(RemoteError, match=f"{lost.address} was lost .*load the model anew"):
            said += "".join(step.text for step in steps)
        assert session.finish == "interrupted"
        assert session.messages[-1]["content"] == said + session.held_back
        with pytest.raises(RemoteError):
            session.answer("again")
        kept = session.messages
    with pytest.raises(RemoteError, match=f"cannot reach {lost.address} "):
        loaded(layered, running)
    running.append(RunningServer(lost.address.port))
    pair = [each for each in running if each is not lost]
    with loaded(layered, pair) as session:
        session.messages[:] = kept
        assert session.answer(None, max_tokens=8, ignore_eos=True)


def test_one_that_dies_while_the_model_is_loaded(
    layered: Path, running: list[RunningServer]
) -> None:
    def dies(what: str, _done: int, _total: int | None) -> None:
        if what.startswith("loading"):
            running[1].kill()

    with pytest.raises(RemoteError, match=f"{running[1].address} was lost"):
        spec_cpu.load(layered, "none", threads=1, rpc=addresses(running), progress=dies)


def test_a_server_is_for_one_at_a_time(
    layered: Path, running: list[RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spec_cpu.rpc.relay._PATIENCE", 0.1)
    said = "does not answer: an RPC server serves one"
    with loaded(layered, running[:1]), pytest.raises(RemoteError, match=said):
        loaded(layered, running[:1])


def test_the_program_ends_with_one_line(layered: Path, running: list[RunningServer]) -> None:
    code = "from spec_cpu_cli.main import main; main()"
    options = ["-m", layered, "-n", "1500", "-c", "2048", "-t", "1", "-q", "--ignore-eos"]
    options += ["--rpc", ",".join(addresses(running)), "-k", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", PROMPT, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as program:
        assert program.stdout is not None
        said = program.stdout.read(1)
        running[0].kill()
        rest, error = program.communicate()
    assert said + rest
    assert program.returncode == 1
    assert error.decode().startswith(f"spec-cpu: the RPC server {running[0].address} was lost (")
    assert error.count(b"\n") == 1


class Events:
    """What an engine tells of one answer, from its thread."""

    def __init__(self) -> None:
        self._queue: Queue[Event] = Queue()

    def __call__(self, event: Event) -> None:
        self._queue.put(event)

    def next(self, *kinds: type) -> Event:
        """The next event of one of these `kinds`."""
        return next(each for each in iter(self._queue.get, None) if isinstance(each, kinds))


def test_an_engine_ends_answers_with_an_error_and_lives_on(
    layered: Path, running: list[RunningServer]
) -> None:
    engine, _ = load_engine(
        layered, "ngram", threads=1, ctx=512, k=3, slots=2, rpc=addresses(running)
    )
    try:
        request = Request(tokens=[5, 6, 7], max_tokens=400, ignore_eos=True)
        answers = [Events(), Events()]
        for answer in answers:
            engine.submit(request, answer)
        for answer in answers:
            assert isinstance(answer.next(Delta, Ended, Failed), Delta)
        running[1].kill()
        later = Events()
        engine.submit(request, later)
        for answer in (*answers, later):
            failed = answer.next(Ended, Failed)
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, RemoteError)
            assert str(running[1].address) in str(failed.error)
    finally:
        engine.close()
