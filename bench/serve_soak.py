"""Load a server as people and their programs do, for a long time, and count what goes wrong.

Clients ask for answers, vanish in the midst of one, send nonsense, send 1 MB, and ask for 100,000
tokens. An answer must come whole, and the same question with the same seed must get the text that
it got the first time, whatever else is under way. Nonsense must be refused as the client's mistake.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve_load import Ask, ask_server, body_of, events, posted, read
from serve_servers import Server, fetched

from spec_cpu.errors import SpecCpuError

CLIENTS = 8
QUESTIONS = 24
LENGTHS = (8, 64)  # tokens of their answers
SETTLED = 600.0  # seconds after which memory should grow no more
LATEST = 30.0  # seconds in which all slots must be free again at the end
ROLE = {"role": "user", "content": "Hello"}
NONSENSE: tuple[bytes, ...] = (
    b"",
    b"\x00\xff\xfe",
    b"{",
    b"[]",
    b"null",
    b'{"messages": []}',
    b'{"messages": "Hello"}',
    b'{"messages": [{"role": "nobody", "content": "Hello"}]}',
    *(
        json.dumps({"messages": [ROLE], **wrong}).encode()
        for wrong in (
            {"temperature": "warm"},
            {"temperature": -1},
            {"top_p": 7},
            {"max_tokens": "all"},
            {"n": 0},
            {"stop": 5},
            {"logit_bias": {"a": "b"}},
            {"top_logprobs": 1000, "logprobs": True},
        )
    ),
)


@dataclass(slots=True)
class Soaked:
    """What happened.

    Attributes:
        done: requests by kind. faults: errors of the server's own, by what they were.
        memory: resident bytes, after so many seconds.
    """

    done: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, int]] = field(default_factory=list)
    tokens: int = 0

    def lines(self) -> list[str]:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.done.most_common())
        sizes = ", ".join(f"{size / 2**20:.0f} MiB at {at:.0f} s" for at, size in self.memory)
        faults = [f"error: {fault} ({n} times)" for fault, n in self.faults.most_common()]
        return [
            f"{sum(self.done.values()):,} requests: {kinds}; {self.tokens:,} tokens",
            f"resident memory: {sizes}",
            *(faults or ["no errors"]),
        ]


def soak(server: Server, prompts: Sequence[str], seconds: float) -> Soaked:
    """Load `server` for so many seconds."""
    soaked, end = Soaked(), time.monotonic() + seconds
    load = Load(server.url, questions(prompts), soaked)
    threads = [threading.Thread(target=load.client, args=[i, end]) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for moment in sorted({min(SETTLED, seconds / 2), seconds}):
        while time.monotonic() < end - seconds + moment and server.process.poll() is None:
            time.sleep(0.5)
        if server.process.poll() is None:
            soaked.memory.append((moment, server.memory()))
    for thread in threads:
        thread.join()
    if server.process.poll() is not None:
        soaked.faults[f"the server ended ({server.process.returncode}): see {server.log}"] += 1
    elif not all_free(server, LATEST):
        soaked.faults["answers are under way that nobody waits for"] += 1
    return soaked


def questions(prompts: Sequence[str]) -> list[dict[str, Any]]:
    """What is asked again and again; every other one at temperature 0."""
    rng = random.Random(0)
    return [
        body_of(Ask(rng.choice(prompts), 0.0, i), rng.randint(*LENGTHS), 0.8 * (i % 2))
        for i in range(QUESTIONS)
    ]


def all_free(server: Server, seconds: float) -> bool:
    """Does no answer remain under way, after so many seconds at the latest?"""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        active = re.search(
            r"^spec_cpu_active_requests (\S+)", fetched(f"{server.url}/metrics"), re.M
        )
        if active is not None and float(active[1]) == 0:
            return True
        time.sleep(0.2)
    return False


class Load:
    """Clients that do one thing after another."""

    def __init__(self, url: str, asked: Sequence[dict[str, Any]], soaked: Soaked) -> None:
        self._url = url
        self._asked = asked
        self._soaked = soaked
        self._texts: dict[int, str] = {}
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[Callable[[random.Random], None], float]] = {
            "asked": (self.ask, 0.6),
            "vanished": (self.vanish, 0.15),
            "nonsense": (self.send_nonsense, 0.15),
            "of 1 MB": (self.send_much, 0.06),
            "for 100,000 tokens": (self.want_much, 0.04),
        }

    def client(self, number: int, end: float) -> None:
        """Do one thing after another until the time `end`."""
        rng = random.Random(number)
        names, weights = list(self._kinds), [weight for _, weight in self._kinds.values()]
        while time.monotonic() < end:
            (kind,) = rng.choices(names, weights)
            try:
                self._kinds[kind][0](rng)
            except (SpecCpuError, OSError, http.client.HTTPException, ValueError) as error:
                self.fault(f"{kind}: {type(error).__name__}: {error}"[:200])
            with self._lock:
                self._soaked.done[kind] += 1

    def fault(self, text: str) -> None:
        with self._lock:
            self._soaked.faults[text] += 1

    def ask(self, rng: random.Random) -> None:
        """An answer, to its end: it is as long as it should be, and the same as ever."""
        i = rng.randrange(len(self._asked))
        answer = ask_server(self._url, self._asked[i])
        with self._lock:
            first = self._texts.setdefault(i, answer.text)
            self._soaked.tokens += answer.tokens
        temperature = self._asked[i]["temperature"]
        if answer.tokens != self._asked[i]["max_tokens"]:
            self.fault("an answer that is not whole")
        if answer.text != first:
            self.fault(f"another text than at first, temperature {temperature:g}")

    def vanish(self, rng: random.Random) -> None:
        """Go away after a few pieces of an answer, or before the first."""
        body = {**rng.choice(self._asked), "max_tokens": 500}
        with posted(self._url, json.dumps(body).encode()) as response:
            self.check_status(response, (200,))
            for _, _ in zip(range(rng.randrange(6)), events(response), strict=False):
                pass

    def send_nonsense(self, rng: random.Random) -> None:
        """What no client should send."""
        with posted(self._url, rng.choice(NONSENSE)) as response:
            self.check_status(response, (400, 422))

    def send_much(self, rng: random.Random) -> None:
        """A prompt that no context holds."""
        text = "".join(rng.choices("abcdefgh \n", k=2**20))
        body = {"messages": [{"role": "user", "content": text}]}
        with posted(self._url, json.dumps(body).encode()) as response:
            self.check_status(response, (400, 413))

    def want_much(self, rng: random.Random) -> None:
        """More tokens than the context holds: refused, or cut where the context ends."""
        sent = time.perf_counter()
        body = {**rng.choice(self._asked), "max_tokens": 100_000}
        with posted(self._url, json.dumps(body).encode()) as response:
            self.check_status(response, (200, 400))
            if response.status == http.HTTPStatus.OK:
                answer = read(response, sent)
                if answer.finish != "length":
                    self.fault(f"100,000 tokens ended by {answer.finish}")

    def check_status(self, response: http.client.HTTPResponse, expected: Sequence[int]) -> None:
        """The status is one of `expected`; a refusal says why."""
        if response.status not in expected:
            self.fault(f"status {response.status}: {response.read(200)!r}")
        elif response.status != http.HTTPStatus.OK and "error" not in json.loads(response.read()):
            self.fault("a refusal that does not say why")
