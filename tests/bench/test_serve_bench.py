"""bench/serve.py: schedules, what is asked over HTTP, what is kept of it, and the table."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from bench_module import load_bench
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.errors import SpecCpuError, UsageError

load = load_bench("serve_load")
servers = load_bench("serve_servers")
cells = load_bench("serve_cells")
soak = load_bench("serve_soak")
bench = load_bench("serve")

PROMPTS = [f"prompt {i}" for i in range(7)]


@given(n=st.integers(0, 40), seed=st.integers(0, 2**16))
def test_a_schedule_is_the_same_for_all_and_takes_prompts_in_turn(n: int, seed: int) -> None:
    asks = load.schedule(PROMPTS, n, 0.5, seed)
    assert asks == load.schedule(PROMPTS, n, 0.5, seed)
    assert len(asks) == n == len({ask.text for ask in asks})
    times = Counter(ask.text.split(": ")[1] for ask in asks)
    assert max(times.values(), default=0) <= 1 + n // len(PROMPTS)
    assert all(ask.pause >= 0 for ask in asks)
    assert not {ask.text for ask in load.schedule(PROMPTS, n, 0.5, seed + 1)} & {
        ask.text for ask in asks
    }


def test_a_schedule_has_bursts_and_gaps() -> None:
    pauses = [ask.pause for ask in load.schedule(PROMPTS, 1000, 0.5, 1)]
    between = [pause for pause in pauses if pause]
    assert pauses.count(0.0) / 1000 == pytest.approx(load.BURST, abs=0.05)
    assert sum(between) / len(between) == pytest.approx(0.5, rel=0.2)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_seconds_count_once_however_many_wait(spans: list[tuple[int, int]]) -> None:
    answers = [load.Answer(float(sent), [float(sent + length)]) for sent, length in spans]
    waited = {second for sent, length in spans for second in range(sent, sent + length)}
    assert load.busy_seconds(answers) == len(waited)


def test_what_arrives_at_once_is_one_arrival() -> None:
    answer = load.Answer(0.0, [1.0, 1.0004, 1.0008, 1.5, 1.5001, 3.0])
    assert answer.gaps == pytest.approx([0.5, 1.5])
    assert load.Answer(0.0).gaps == load.Answer(0.0, [1.0]).gaps == []


class Made(BaseHTTPRequestHandler):
    """A server that answers each request with `status` and `lines`."""

    status: ClassVar[int] = 200
    lines: ClassVar[list[str]] = []
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write("".join(f"{line}\n" for line in self.lines).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Made.status, Made.lines, Made.bodies = 200, list(whole("Hel", "lo")), []
    with ThreadingHTTPServer(("127.0.0.1", 0), Made) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def event(**parts: Any) -> str:
    return f"data: {json.dumps(parts)}\n"


def piece(text: str | None, finish: str | None = None) -> str:
    return event(choices=[{"delta": {"content": text}, "finish_reason": finish}])


def whole(*texts: str) -> Iterator[str]:
    """A stream as spec-cpu's."""
    yield piece(None)
    yield from map(piece, texts)
    yield piece(None, "length")
    details = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 4}
    yield event(choices=[], usage={"completion_tokens": 9, "completion_tokens_details": details})
    yield "data: [DONE]\n"


def asked(text: str = "Hello") -> dict[str, Any]:
    return dict(load.body_of(load.Ask(text, 0.0, 5), 9, 0.8))


def test_an_answer_is_read_from_its_stream(url: str) -> None:
    answer = load.ask_server(url, asked())
    assert (answer.text, answer.tokens, answer.drafted) == ("Hello", 9, 7)
    assert len(answer.arrivals) == 2
    assert json.loads(Made.bodies[0])["seed"] == 5


def test_what_llama_server_drafted_is_read_from_its_timings(url: str) -> None:
    last = event(choices=[], usage={"completion_tokens": 9}, timings={"draft_n": 12})
    Made.lines = [piece("Hello", "length"), last, "data: [DONE]\n"]
    assert load.ask_server(url, asked()).drafted == 12


@pytest.mark.parametrize(
    ("status", "lines", "said"),
    [
        (500, ["out of luck"], "answered 500: out of luck"),
        (200, [piece("Hel")], "a stream ended before its answer did"),
        (200, [event(error={"message": "broken"})], "ended with an error: .*broken"),
    ],
)
def test_what_goes_wrong_is_told(url: str, status: int, lines: list[str], said: str) -> None:
    Made.status, Made.lines = status, lines
    with pytest.raises(SpecCpuError, match=said):
        load.ask_server(url, asked())
    with pytest.raises(SpecCpuError, match=said):
        load.play(url, load.schedule(PROMPTS, 5, 1e-9, 0), 2, 9, 0.0)


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(SpecCpuError, match="ConnectionRefusedError"):
        load.ask_server(f"http://127.0.0.1:{servers.free_port()}", asked())


def test_all_of_a_schedule_is_asked_once(url: str) -> None:
    asks = load.schedule(PROMPTS, 20, 1e-9, 0)
    assert len(load.play(url, asks, 4, 9, 0.0)) == 20
    sent = [json.loads(body)["messages"][0]["content"] for body in Made.bodies]
    assert sorted(sent) == sorted(ask.text for ask in asks)


def record(tokens: int, seconds: float = 1.0) -> Any:
    return cells.Record(tokens, seconds, firsts=[0.25, 0.5], gaps=[0.01, 0.03], nodes=2.5)


def cell(folder: Path, clients: int = 8, **speeds: list[int]) -> Any:
    kept = cells.Cell.read(folder, "small-q4_0", 0.8, clients)
    for name, tokens in speeds.items():
        for each in tokens:
            kept.add({"ours": servers.OURS, "llama": servers.LLAMA}[name], record(each))
    return kept


def test_a_record_sums_up_its_answers() -> None:
    answers = [load.Answer(0.0, [1.0, 2.0], "", "length", 6, 4), load.Answer(1.0, [4.0], "")]
    known = cells.Record.of(answers, passes=2.0)
    assert known == cells.Record(6, 4.0, [1.0, 3.0], [1.0], 2.0)
    assert known.speed == 1.5


def test_cells_go_on_where_they_ended(tmp_path: Path) -> None:
    kept = cell(tmp_path, ours=[30, 10, 20], llama=[10])
    assert cells.cells_in(tmp_path) == [kept]
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
    kept.path.write_text("{")
    with pytest.raises(UsageError, match="is damaged: delete it"):
        cells.cells_in(tmp_path)


def test_ratios_are_of_the_same_round(tmp_path: Path) -> None:
    kept = cell(tmp_path, ours=[30, 10, 20, 90], llama=[10, 10, 5])
    assert kept.ratio(servers.LLAMA) == 3.0
    assert kept.ratio(servers.OURS) == 1.0


def test_the_table_has_a_row_for_each_server_and_says_where_we_lose(tmp_path: Path) -> None:
    cell(tmp_path, 8, ours=[30], llama=[10])
    cell(tmp_path, 2, ours=[10], llama=[20])
    cell(tmp_path, 1, llama=[20])
    rows = [row for each in cells.cells_in(tmp_path) for row in each.rows()]
    assert [row["clients"] for row in rows] == [1, 2, 2, 8, 8]
    lines = cells.markdown(rows)
    assert len(lines) == 2 + len(rows)
    assert len({line.count("|") for line in lines}) == 1
    assert lines[-1] == (
        "| small-q4_0 | 0.8 | 8 | llama-server | 10.0 | 3.00 | 375, 498 ms | 20, 30 ms | 2.5 | 1 |"
    )
    first, *lost = cells.verdict(rows)
    assert first == "spec-cpu is ahead in 1 of 2 comparisons."
    assert lost == ["Not ahead: small-q4_0, temperature 0.8, 2 clients: 0.50 of llama-server."]


def test_each_server_plays_each_round_of_a_cell_beside_the_others(tmp_path: Path) -> None:
    both = [cell(tmp_path, clients) for clients in (1, 8)]
    running = [SimpleNamespace(name=name) for name in servers.SERVERS]
    played = list(bench.missing(both, running, 3))
    assert len(played) == 3 * 2 * len(running)
    groups = [played[i : i + len(running)] for i in range(0, len(played), len(running))]
    for group in groups:
        assert len({(one[0].clients, one[2]) for one in group}) == 1
        assert {one[1].name for one in group} == set(servers.SERVERS)
    assert [one[1] for one in groups[0]] == [one[1] for one in groups[2]][::-1]


def test_what_is_kept_is_not_played_again(tmp_path: Path) -> None:
    kept = cell(tmp_path, ours=[30], llama=[10, 10])
    running = [SimpleNamespace(name=name) for name in (servers.OURS, servers.LLAMA)]
    left = [(server.name, i) for _, server, i in bench.missing([kept], running, 2)]
    assert left == [(servers.OURS, 1)]


def loaded(url: str) -> Any:
    return soak.Load(url, [asked()], soak.Soaked())


def test_a_soak_finds_no_fault_where_there_is_none(url: str) -> None:
    under = loaded(url)
    for _ in range(3):
        under.ask(Random(0))
        under.vanish(Random(0))
        under.want_much(Random(0))
    Made.status, Made.lines = 400, ['{"error": {}}']
    under.send_nonsense(Random(0))
    under.send_much(Random(0))
    under.want_much(Random(0))
    assert not under._soaked.faults
    assert max(map(len, Made.bodies)) > 2**20


def test_a_soak_finds_another_text_and_an_answer_cut_short(url: str) -> None:
    under = loaded(url)
    under.ask(Random(0))
    Made.lines = list(whole("Good", "bye"))
    under.ask(Random(0))
    Made.lines = [piece("Hello", "stop"), event(choices=[], usage={"completion_tokens": 5})]
    under.ask(Random(0))
    assert under._soaked.faults == {
        "another text than at first, temperature 0.8": 1,
        "an answer that is not whole": 1,
    }


@pytest.mark.parametrize("kind", ["vanish", "send_nonsense", "send_much", "want_much"])
def test_a_soak_finds_a_server_that_fails(url: str, kind: str) -> None:
    under = loaded(url)
    Made.status, Made.lines = 500, ['{"error": {}}']
    getattr(under, kind)(Random(0))
    assert [fault for fault in under._soaked.faults if fault.startswith("status 500")]


def test_a_soak_finds_nonsense_that_is_answered(url: str) -> None:
    under = loaded(url)
    under.send_nonsense(Random(0))
    assert len(under._soaked.faults) == 1


def test_a_client_goes_on_after_a_fault() -> None:
    under = loaded(f"http://127.0.0.1:{servers.free_port()}")
    clock = iter([0.0, 0.0, 0.0, 9.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soak.time, "monotonic", lambda: next(clock))
        under.client(0, end=1.0)
    assert sum(under._soaked.done.values()) == sum(under._soaked.faults.values()) == 3


def test_a_soak_tells_what_happened() -> None:
    soaked = soak.Soaked(Counter(asked=12), Counter(), [(600.0, 2**20), (900.0, 2**21)], 700)
    assert soaked.lines() == [
        "12 requests: 12 asked; 700 tokens",
        "resident memory: 1 MiB at 600 s, 2 MiB at 900 s",
        "no errors",
    ]
    soaked.faults["status 500"] = 2
    assert soaked.lines()[-1] == "error: status 500 (2 times)"


def test_servers_differ_in_what_drafts_alone(tmp_path: Path) -> None:
    models = servers.Models(Path("t.gguf"), "ngram", Path("r.gguf"))
    found = servers.commands(models, Path("llama-server"), repack=True)
    assert tuple(found) == servers.SERVERS
    assert set(found[servers.LLAMA_DRAFT]) > set(found[servers.LLAMA])
    assert set(found[servers.LLAMA_NGRAM]) > set(found[servers.LLAMA])
    assert list(servers.commands(models, None, repack=True)) == [
        servers.OURS,
        servers.PLAIN,
        servers.PINNED_OURS,
    ]


def test_a_server_that_cannot_start_is_told(tmp_path: Path) -> None:
    ends = {"false": ["/bin/false"]}
    with pytest.raises(SpecCpuError, match=r"does not start: see .*false\.log"):
        servers.running(ends, tmp_path).__enter__()
    with pytest.raises(SpecCpuError, match="cannot run /no/such"):
        servers.running({"no": ["/no/such"]}, tmp_path).__enter__()
