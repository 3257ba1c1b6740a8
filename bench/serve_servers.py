"""The servers that `bench/serve.py` measures: how they are started, and what they count."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spec_cpu.errors import SpecCpuError
from spec_cpu.llama.params import uses_amx
from spec_cpu.machine import hardware

SLOTS = 8
CONTEXT = 2048  # tokens of a slot
PINNED = 4  # tokens to guess ahead, where the number is pinned
LOADING = 240.0  # seconds until a server must answer
SPEC_CPU = (sys.executable, "-c", "from spec_cpu_cli.main import main; main()", "serve")

OURS, PLAIN, PINNED_OURS = "spec-cpu", "spec-cpu -d none", f"spec-cpu -k {PINNED}"
LLAMA, LLAMA_NGRAM, LLAMA_DRAFT = "llama-server", "llama-server ngram-mod", "llama-server draft"
SERVERS = (OURS, PLAIN, PINNED_OURS, LLAMA, LLAMA_NGRAM, LLAMA_DRAFT)


@dataclass(frozen=True, slots=True)
class Models:
    """What is served: `draft` by ours, `rival_draft` (a model, no head) by llama-server."""

    target: Path
    draft: str
    rival_draft: Path | None


def commands(models: Models, llama_server: Path | None, *, repack: bool) -> dict[str, list[str]]:
    """Of every server that can be started with these, without the port.

    Args:
        repack: may llama-server repack the weights, though it might multiply with AMX?
    """
    ours = [*SPEC_CPU, "-m", str(models.target), "--slots", str(SLOTS), "-c", str(CONTEXT), "-q"]
    found = {
        OURS: [*ours, "-d", models.draft],
        PLAIN: [*ours, "-d", "none"],
        PINNED_OURS: [*ours, "-d", models.draft, "-k", str(PINNED)],
    }
    if llama_server is None:
        return found
    theirs = [str(llama_server), "-m", str(models.target), "-np", str(SLOTS), "--poll", "0"]
    theirs += ["-c", str(SLOTS * CONTEXT), "-t", str(hardware.threads(None)), "--metrics"]
    if uses_amx() and not repack:
        theirs.append("--no-repack")
    found[LLAMA] = theirs
    found[LLAMA_NGRAM] = [*theirs, "--spec-type", "ngram-mod"]
    if models.rival_draft is not None:
        draft = ["-md", str(models.rival_draft), "--spec-type", "draft-simple"]
        found[LLAMA_DRAFT] = [*theirs, *draft, "--spec-draft-n-max", str(PINNED)]
    return found


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def passes(self) -> float:
        """Passes of the target so far, as the server counts them."""
        counted = re.search(
            r"^(?:spec_cpu_cycles_total|llamacpp:n_decode_total) (\S+)",
            fetched(f"{self.url}/metrics"),
            re.MULTILINE,
        )
        if counted is None:
            raise SpecCpuError(f"{self.name} does not count its passes")
        return float(counted[1])

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(commands: dict[str, list[str]], logs: Path) -> Iterator[list[Server]]:
    """All servers, started one after the other (each may measure the machine first).

    Raises:
        SpecCpuError: one of them does not start; its log, in `logs`, says why.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        servers = []
        for name, command in commands.items():
            log = logs / f"{name.replace(' ', '_')}.log"
            server = started(name, command, log, stack.enter_context(log.open("wb")))
            stack.callback(stop, server.process)
            wait_until_loaded(server)
            servers.append(server)
        yield servers


def started(name: str, command: Sequence[str], log: Path, out: IO[bytes]) -> Server:
    port = free_port()
    try:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=out, stderr=out)
    except OSError as error:
        raise SpecCpuError(f"cannot run {command[0]}: {error.strerror}") from None
    return Server(name, f"http://127.0.0.1:{port}", process, log)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_until_loaded(server: Server) -> None:
    deadline = time.monotonic() + LOADING
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            fetched(f"{server.url}/health")
            return
        except OSError:
            time.sleep(0.1)
    raise SpecCpuError(f"{server.name} does not start: see {server.log}")


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        text: str = response.read().decode()
        return text


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
