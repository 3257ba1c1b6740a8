"""What a monitor is told: Prometheus' counters, gauges and histograms."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from spec_cpu.serve.engine.engine import Engine
from spec_cpu.serve.engine.request import Delta, Ended, Event, Reading

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counts what the server does. Of the engine's own counters it asks the engine."""

    def __init__(self, engine: Engine) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_EngineState(engine))
        self.requests = Counter(
            "spec_cpu_requests",
            "Requests by path and status",
            ["path", "status"],
            registry=registry,
        )
        self._prompt = Counter(
            "spec_cpu_prompt_tokens", "Tokens of prompts that were answered", registry=registry
        )
        self._reused = Counter(
            "spec_cpu_prompt_tokens_reused", "Those that were in the cache", registry=registry
        )
        self._answered = Counter(
            "spec_cpu_answers", "Answers by how they ended", ["finish"], registry=registry
        )
        self._first = Histogram(
            "spec_cpu_time_to_first_token_seconds",
            "From a request to the first token of its answer",
            registry=registry,
            buckets=_SECONDS,
        )
        self._gap = Histogram(
            "spec_cpu_token_gap_seconds",
            "From a step of an answer to the next",
            registry=registry,
            buckets=_SECONDS,
        )

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)

    def watch(self) -> Watch:
        """What counts the events of an answer that begins now."""
        return Watch(self._first, self._gap, self._prompt, self._reused, self._answered)


class Watch:
    """Counts the events of one answer."""

    def __init__(
        self, first: Histogram, gap: Histogram, prompt: Counter, reused: Counter, answered: Counter
    ) -> None:
        self._next, self._gap = first, gap
        self._prompt, self._reused, self._answered = prompt, reused, answered
        self._last = time.perf_counter()

    def see(self, event: Event) -> None:
        if isinstance(event, Delta):
            now = time.perf_counter()
            self._next.observe(now - self._last)
            self._next, self._last = self._gap, now
        elif isinstance(event, Ended):
            self._prompt.inc(event.prompt_tokens)
            self._reused.inc(event.reused_tokens)
            self._answered.labels(event.finish).inc()
        elif not isinstance(event, Reading):
            self._answered.labels("failed").inc()


class _EngineState(Collector):
    """The engine's state at the moment it is asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Nothing: so that nobody asks the engine before it is wanted."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        state = self._engine.state
        for name, text, value in (
            ("slots", "Conversations at most at a time", state.slots),
            ("active_requests", "Answers under way", state.active),
            ("waiting_requests", "Requests in the queue", state.waiting),
            ("pass_rows", "Rows of the latest pass of the model", state.width),
            ("pass_nodes", "Drafted ones among them", sum(one.drafted for one in state.shares)),
        ):
            yield GaugeMetricFamily(f"spec_cpu_{name}", text, value)
        yield CounterMetricFamily("spec_cpu_tokens", "Tokens of answers", state.tokens)
        yield CounterMetricFamily("spec_cpu_cycles", "Steps of answers", state.cycles)
        drafted = CounterMetricFamily(
            "spec_cpu_drafted_tokens", "Drafted tokens", labels=["source"]
        )
        accepted = CounterMetricFamily("spec_cpu_accepted_tokens", "That stayed", labels=["source"])
        for source, (n, stayed) in state.by_source.items():
            drafted.add_metric([source], n)
            accepted.add_metric([source], stayed)
        yield drafted
        yield accepted
        cost = GaugeMetricFamily(
            "spec_cpu_pass_cost", "V(n): a pass over n rows, in passes over one", labels=["rows"]
        )
        for n, passes in enumerate(state.verify, 1):
            cost.add_metric([str(n)], passes)
        yield cost
