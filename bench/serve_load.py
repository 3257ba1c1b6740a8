"""The load of `bench/serve.py`: who asks what and when, and what comes back over HTTP."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from spec_cpu.errors import SpecCpuError

BURST = 0.7  # the share of requests that follow the one before at once
TOGETHER = 1e-3  # seconds: what arrives within them arrived at once
PATH = "/v1/chat/completions"
PATIENCE = 600.0  # seconds without a sign of a server
SAMPLING = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a schedule: whichever client is free waits `pause` seconds and sends it."""

    text: str
    pause: float
    seed: int


def schedule(prompts: Sequence[str], n: int, gap: float, seed: int) -> list[Ask]:
    """`n` requests as they come in a day: bursts, and gaps of `gap` seconds on average.

    A prompt comes again once all others had their turn. A number in front makes each text of each
    `seed` a new one, which no server has in its cache.
    """
    rng = random.Random(seed)
    order: list[str] = []
    asks = []
    for i in range(n):
        order = order or rng.sample(list(prompts), len(prompts))
        pause = 0.0 if rng.random() < BURST else rng.expovariate(1 / gap)
        asks.append(Ask(f"{seed}.{i}: {order.pop()}", pause, rng.randrange(2**31)))
    return asks


@dataclass(slots=True)
class Answer:
    """What came back. Times are seconds of `time.perf_counter`.

    Attributes:
        arrivals: when pieces of text came.
        drafted: tokens that the server drafted for it, where it tells.
    """

    sent: float
    arrivals: list[float] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    tokens: int = 0
    drafted: int = 0

    @property
    def gaps(self) -> list[float]:
        """Seconds between arrivals; of what arrived at once, the first counts."""
        moments = self.arrivals[:1]
        for moment in self.arrivals:
            if moment - moments[-1] > TOGETHER:
                moments.append(moment)
        return [b - a for a, b in pairwise(moments)]


def body_of(ask: Ask, tokens: int, temperature: float) -> dict[str, Any]:
    """A chat completion to be streamed, of exactly so many tokens."""
    return {
        **SAMPLING,
        "messages": [{"role": "user", "content": ask.text}],
        "temperature": temperature,
        "seed": ask.seed,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@contextmanager
def posted(url: str, body: bytes) -> Iterator[http.client.HTTPResponse]:
    """The response to a request for a chat completion; leaving closes the connection."""
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)) as connection:
        connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            yield response


def ask_server(url: str, body: dict[str, Any]) -> Answer:
    """Ask for a chat completion and read it to its end.

    Raises:
        SpecCpuError: the server cannot be reached, refused, or ended before the answer did.
    """
    sent = time.perf_counter()
    try:
        with posted(url, json.dumps(body).encode()) as response:
            if response.status != http.HTTPStatus.OK:
                said = response.read(500).decode("utf-8", "replace")
                raise SpecCpuError(f"{url} answered {response.status}: {said}")
            return read(response, sent)
    except (OSError, http.client.HTTPException) as error:
        raise SpecCpuError(f"{url}: {type(error).__name__}: {error}") from None


def read(response: http.client.HTTPResponse, sent: float) -> Answer:
    """A stream, to its end.

    Raises:
        SpecCpuError: the stream tells of an error, or ends before the answer does.
    """
    answer = Answer(sent)
    for event in events(response):
        take(answer, event)
    if answer.finish is None:
        raise SpecCpuError("a stream ended before its answer did")
    return answer


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The server-sent events of a stream, up to its end."""
    for line in response:
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            return
        if data and data != line.strip():
            yield json.loads(data)


def take(answer: Answer, event: dict[str, Any]) -> None:
    """Add an event of its stream to an answer.

    Raises:
        SpecCpuError: the event tells of an error.
    """
    if "error" in event:
        raise SpecCpuError(f"an answer ended with an error: {event['error']}")
    for choice in event.get("choices", ()):
        if text := choice["delta"].get("content"):
            answer.arrivals.append(time.perf_counter())
            answer.text += text
        answer.finish = choice.get("finish_reason") or answer.finish
    if usage := event.get("usage"):
        answer.tokens = usage["completion_tokens"]
        details = usage.get("completion_tokens_details") or {}
        kinds = ("accepted_prediction_tokens", "rejected_prediction_tokens")
        answer.drafted = sum(details.get(kind) or 0 for kind in kinds)
    if timings := event.get("timings"):
        answer.drafted = timings.get("draft_n", 0)


def play(
    url: str, asks: Sequence[Ask], clients: int, tokens: int, temperature: float
) -> list[Answer]:
    """Have `clients` ask all of a schedule, each its next one as soon as it is free.

    Raises:
        SpecCpuError: what `ask_server` raised first.
    """
    waiting, lock = iter(asks), threading.Lock()
    answers: list[Answer] = []
    errors: list[SpecCpuError] = []

    def client() -> None:
        while not errors:
            with lock:
                ask = next(waiting, None)
            if ask is None:
                return
            time.sleep(ask.pause)
            try:
                answers.append(ask_server(url, body_of(ask, tokens, temperature)))
            except SpecCpuError as error:
                errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers


def busy_seconds(answers: Sequence[Answer]) -> float:
    """Seconds in which at least one answer was waited for."""
    seconds, until = 0.0, float("-inf")
    for answer in sorted(answers, key=lambda one: one.sent):
        end = max(answer.arrivals, default=answer.sent)
        seconds += max(0.0, end - max(answer.sent, until))
        until = max(until, end)
    return seconds
