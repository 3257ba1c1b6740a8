"""Many clients at a time: `spec-cpu serve` beside llama.cpp's server, over HTTP.

    python bench/serve.py measure [--target T.gguf] [--draft D] [--llama-server PROGRAM]
        [--rival-draft R.gguf] [--clients 1,2,4,8] [--temperatures 0,0.8] [--rounds N] [--seconds S]
    python bench/serve.py table [--json]
    python bench/serve.py soak --seconds S [--target T.gguf] [--draft D]

`measure` starts every server (ours as it comes, with nothing that drafts, and with the number of
drafted tokens pinned; `llama-server` plain, with its n-grams, and with --rival-draft) and has
clients ask them for streamed answers: the benchmark's prompts, in bursts with gaps between them, by
a schedule that is the same for all servers. One plays a schedule while the others wait, then the
next; every other round in reverse. What was measured is kept in --state, a file for each
cell: an interrupted run goes on where it ended. `table` shows medians over the rounds; "ours in
this" is the median of each round's tokens a second of ours over those of the row.

Every answer has exactly --tokens tokens. A gap is the time between two pieces of text; pieces that
come within a millisecond count as one. Seconds in which nobody waits for an answer are not counted.

`soak` has clients ask without end, vanish, send nonsense, send 1 MB, and ask for 100,000 tokens,
and counts what goes wrong (see `serve_soak.py`).
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from serve_cells import Cell, Record, cells_in, markdown, verdict
from serve_load import play, schedule
from serve_servers import OURS, SERVERS, Models, Server, commands, running
from serve_soak import soak

from spec_cpu import defaults
from spec_cpu.bench.arms import SHIPPED, read_prompts
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.kernels import isa
from spec_cpu.machine import hardware
from spec_cpu.models.catalog import load_catalog
from spec_cpu.models.fetch import resolve


def main() -> None:
    pair = load_catalog().pair(defaults.PAIR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("measure", "table", "soak"))
    parser.add_argument("--target", default=pair.target)
    parser.add_argument("--draft", default=f"{defaults.NGRAM},{pair.draft}", help="of ours")
    parser.add_argument("--llama-server", type=Path, metavar="PROGRAM", help="default: without")
    parser.add_argument("--repack", action="store_true", help="llama-server was built without AMX")
    parser.add_argument("--rival-draft", type=Path, metavar="R.gguf", help="default: without")
    parser.add_argument("--servers", default=",".join(SERVERS), help="default: all")
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--requests", type=int, default=16, help="of a cell")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    parser.add_argument("--gap", type=float, default=0.3, help="seconds between bursts, on average")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="begin nothing that would end later")
    parser.add_argument("--state", type=Path, default=Path("serve-state"), help="of the results")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    given = parser.parse_args()
    try:
        if given.command == "table":
            print_table(given.state / isa.choose(None).name, as_json=given.json)
        elif given.command == "measure":
            measure(given)
        else:
            soak_ours(given)
    except SpecCpuError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


def print_table(folder: Path, *, as_json: bool) -> None:
    rows = [row for cell in cells_in(folder) for row in cell.rows()]
    machine = f"{hardware.processor()}, {folder.name}, {hardware.threads(None)} threads"
    if as_json:
        print(json.dumps({"machine": machine, "rows": rows}, indent=2))
    else:
        print("\n".join([machine, "", *markdown(rows), "", *verdict(rows)]))


def chosen(given: argparse.Namespace) -> dict[str, list[str]]:
    """The commands of the servers that were asked for.

    Raises:
        UsageError: an unknown name.
    """
    models = Models(resolve(given.target), given.draft, given.rival_draft)
    found = commands(models, given.llama_server, repack=given.repack)
    names = given.servers.split(",")
    for name in names:
        if name not in SERVERS:
            raise UsageError(f"--servers: {name} is none of {', '.join(SERVERS)}")
    return {name: command for name, command in found.items() if name in names}


def measure(given: argparse.Namespace) -> None:
    """Measure what is missing of each cell, the servers in turn, until the time is up."""
    begin = perf_counter()
    folder, model = given.state / isa.choose(None).name, resolve(given.target).stem
    temperatures = [float(each) for each in given.temperatures.split(",")]
    clients = [int(each) for each in given.clients.split(",")]
    cells = [Cell.read(folder, model, t, n) for t in temperatures for n in clients]
    prompts = [prompt.turns[0] for prompt in read_prompts(SHIPPED)]
    longest: dict[str, float] = {}
    with running(chosen(given), given.state / "logs") as servers:
        for server in servers:
            play(server.url, schedule(prompts, 1, given.gap, -1), 1, 8, 0.0)
        for cell, server, i in missing(cells, servers, given.rounds):
            start = perf_counter()
            if given.seconds and start - begin + longest.get(server.name, 0.0) > given.seconds:
                print("not finished: the same command goes on", flush=True)
                return
            # The seed makes the round's texts of this cell; they are the same for every server.
            seed = zlib.crc32(f"{i} {cell.clients} {cell.temperature:g}".encode()) % 2**16
            asks = schedule(prompts, given.requests, given.gap, seed)
            passes = server.passes()
            answers = play(server.url, asks, cell.clients, given.tokens, cell.temperature)
            record = Record.of(answers, server.passes() - passes)
            cell.add(server.name, record)
            seconds = perf_counter() - start
            longest[server.name] = max(seconds, longest.get(server.name, 0.0))
            print(
                f"{model}, temperature {cell.temperature:g}, {cell.clients} clients, "
                f"{server.name}: {record.speed:.1f} tok/s, {seconds:.0f} s",
                flush=True,
            )


def missing(
    cells: Sequence[Cell], servers: Sequence[Server], rounds: int
) -> Iterator[tuple[Cell, Server, int]]:
    """What is left to play: of each round, cell by cell, the servers forth and back."""
    for i in range(rounds):
        for cell in cells:
            for server in servers[:: -1 if i % 2 else 1]:
                if len(cell.records.get(server.name, ())) <= i:
                    yield cell, server, i


def soak_ours(given: argparse.Namespace) -> None:
    """Load ours for a while, and tell what went wrong."""
    if given.seconds is None:
        raise UsageError("soak needs --seconds")
    prompts = [prompt.turns[0] for prompt in read_prompts(SHIPPED)]
    ours = {OURS: chosen(given)[OURS]}
    with running(ours, given.state / "logs") as (server,):
        soaked = soak(server, prompts, given.seconds)
    print("\n".join(soaked.lines()))
    if soaked.faults:
        raise SpecCpuError(f"{sum(soaked.faults.values())} errors of the server's own")


if __name__ == "__main__":
    main()
