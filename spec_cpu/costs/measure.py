"""Measures what passes cost here, with the loaded models."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from spec_cpu.costs.costs import Costs
from spec_cpu.draft.base import DraftPasses
from spec_cpu.progress import MeasureProgress

if TYPE_CHECKING:
    from spec_cpu.llama.sequence import KVSequence
    from spec_cpu.sampling.pipeline import Pipeline

_FIRST = (1, 2, 4, 8)  # widths that are measured first: whatever the time, V bends between these
_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32)  # then all; between them V is interpolated
_BUDGET = 3.0  # seconds for a small model
_BUDGET_PASSES = 12  # passes' worth of time for a large one
_SPREAD = 0.03  # relative: medians this steady need no more rounds
_ROWS = 5
_BATCH = 16  # tokens in a batch when the draft's catching up is timed
_STEADY = 3  # rounds before medians may count as steady
_UNDISTURBED = 2  # passes of a width, so that one of them may be held up
_REBUILD_MATTERS_BELOW = 0.05  # seconds of a plain step: a larger model hides a graph's building
_SETTLED = (0.02, 0.05)  # seconds of passes of a width before they count, and until the next width
_PLAIN_SETTLED = (0.1, 0.15)
_DEEP_WIDTHS = (8, 4, 2, 1)  # measured again further into a text
_TINY = 0.015  # seconds of a plain step: in a larger model's, attention and clock matter little
_WIDE = 4  # tokens in a pass after which the clock recovers
_RECOVERED = 12  # plain steps later
_RECOVERIES = 5
_DEEPER = (128, 512)  # tokens further: at least, for a difference to be seen, and at most
_DEEPER_SECONDS = 0.5  # that reading them may take
_DEEP_ROUNDS = 3


def measure(
    target: KVSequence,
    token: int,
    *,
    max_width: int,
    pipeline: Pipeline,
    draft: DraftPasses | None = None,
    progress: MeasureProgress | None = None,
) -> Costs:
    """Measure with the loaded models, at the depth where their sequences end.

    The widths 1, 2, 4 and 8 first, then rounds over all, until the medians are steady or the time
    is up: 3 s, or 12 passes' worth for a model so large that this is more. What was not
    reached is interpolated, and corrected by the run. For a tiny model up to 5 s more go into what
    further context adds, and how the clock recovers.

    Args:
        token: fed again and again at the end of both sequences, which are left as they were.
        max_width: the widest target pass to know about.
        pipeline: whose time a row is measured.
        draft: the draft's passes, if a model or a head drafts.
    """
    bench = _Bench(target, token, draft)
    bench.row(pipeline)
    bench.target_pass(1)  # the first of all passes is slow
    room = min(max_width, target.context.n_ctx - len(target), target.context.max_outputs)
    _measure_rounds(bench, [n for n in _WIDTHS if n <= room], progress)
    if bench.plain < _TINY:
        bench.recover(min(_WIDE, room))
        bench.deepen([n for n in _DEEP_WIDTHS if n <= room], max_width)
    return bench.costs(max_width)


def _measure_rounds(bench: _Bench, widths: list[int], progress: MeasureProgress | None) -> None:
    budget = max(_BUDGET, _BUDGET_PASSES * bench.plain)
    for n in widths:
        if n in _FIRST:
            bench.target_pass(n)
    # Up, then down, so that the clock changes little from one width to the next.
    while not bench.steady(widths) and _round(bench, widths, budget, progress):
        widths = widths[::-1]


def _round(
    bench: _Bench, widths: list[int], budget: float, progress: MeasureProgress | None
) -> bool:
    """Measure each width once more; False if that took all the time there was."""
    for n in widths:
        if bench.spent + bench.expected(n) > budget:
            return False
        bench.target_pass(n)
        if progress is not None:
            progress(bench.spent, budget)
    return True


class _Bench:
    """Timed passes of both models, and what they come to."""

    def __init__(self, target: KVSequence, token: int, draft: DraftPasses | None) -> None:
        self.passes: dict[int, list[float]] = {}
        self._target = target
        self._draft = draft
        self._token = token
        self._rebuilds: list[float] = []
        self._draft_steps: list[float] = []
        self._draft_reads: list[float] = []
        self._catch_ups: list[float] = []
        self._rows: list[float] = []
        self._deepens: tuple[float, ...] = ()
        self._recovery = 0.0
        self._start = perf_counter()

    @property
    def spent(self) -> float:
        return perf_counter() - self._start

    @property
    def plain(self) -> float:
        """The quickest pass over one token so far: the one that was disturbed least."""
        return min(self.passes[1])

    def target_pass(self, n: int) -> None:
        """Passes of one width: the first builds its graph, the last ones show what it takes.

        A processor lowers its clock for wide passes, and raises it again in the course of many. So
        each width is timed as it is used: plain steps after plain steps, and wider passes after
        the draft's.
        """
        start = perf_counter()
        first = self._pass(n)
        times = self.passes.setdefault(n, [])
        if self.passes.get(1) and self.plain > _REBUILD_MATTERS_BELOW:
            times.append(first)
        else:
            self._rebuilds.append(max(0.0, first - self._pass(n)))
            times += self._settled(n, start, drafting=n > 1)
        self._draft_pass()
        self._time_reading()

    def _draft_pass(self) -> None:
        draft = self._draft
        if draft is None:
            return
        # As in a cycle: the first step follows the target's pass, which leaves the caches full of
        # its weights, and the second one builds a graph if the first was of another width.
        widths = (1 + draft.rereads, 1, 1)
        first, second, step = (_timed(draft, draft.score, [self._token] * n) for n in widths)
        self._draft_steps.append(step)
        self._catch_ups.append(max(0.0, first + second - 2 * step))

    def _time_reading(self) -> None:
        draft = self._draft
        if draft is not None:
            n = min(_BATCH, draft.context.n_ctx - len(draft))
            self._draft_reads.append(_timed(draft, draft.prefill, [self._token] * n) / n)
            _timed(draft, draft.score, [self._token])  # a first step finds this one's graph

    def recover(self, wide: int) -> None:
        """See what plain steps lose after a pass over `wide` tokens."""
        if wide < 2:
            return
        for _ in range(_RECOVERED):  # from what was measured before
            self._pass(1)
        usual: list[float] = []
        after: list[list[float]] = [[] for _ in range(_RECOVERED)]
        for _ in range(_RECOVERIES):
            for _ in after:
                usual.append(self._pass(1))
            self._draft_pass()
            self._pass(wide)
            for times in after:
                times.append(self._pass(1))
        lost = sum(map(_median, after)) - len(after) * _median(usual)
        self._recovery = max(0.0, lost - _median(self._rebuilds))

    def _pass(self, n: int) -> float:
        """Seconds of a target pass over n tokens."""
        return _timed(self._target, self._target.score, [self._token] * n)

    def deepen(self, widths: Sequence[int], max_width: int) -> None:
        """See what further context adds, if that many tokens are read in a moment.

        Near and far are timed by turns: a change of the machine's pace must not look like this.
        """
        tokens = self._deeper()
        if tokens < _DEEPER[0] or len(widths) < 2:
            return
        here: list[list[float]] = [[] for _ in widths]
        there: list[list[float]] = [[] for _ in widths]
        depth = len(self._target)
        for _ in range(_DEEP_ROUNDS):
            self._time(widths, here)
            self._target.prefill([self._token] * tokens)
            self._time(widths, there)
            self._target.truncate(depth)
        more = (
            np.array([_median(b) - _median(a) for a, b in zip(here, there, strict=True)]) / tokens
        )
        # A straight line in n, least squares of what is seen in proportion to the passes.
        weights = [1.0 / _median(times) for times in here]
        slope, base = np.polyfit(widths, more, 1, w=weights)
        line = np.maximum(0.0, base + slope * np.arange(1, max_width + 1))
        self._deepens = tuple(np.maximum.accumulate(line).tolist())

    def _settled(self, n: int, start: float, *, drafting: bool = False) -> list[float]:
        """Passes over n tokens that begin late enough after `start`.

        Two at least: where one was held up, by a process that was stopped for a while or a machine
        that slept, the other says what a pass takes.

        Args:
            drafting: each after a pass of the draft.
        """
        settled, end = _SETTLED if n > 1 else _PLAIN_SETTLED
        times: list[float] = []
        while len(times) < _UNDISTURBED or perf_counter() - start < end:
            if drafting:
                self._draft_pass()
            begin = perf_counter()
            seconds = self._pass(n)
            if begin - start > settled or perf_counter() - start > end:
                times.append(seconds)
        return times

    def _deeper(self) -> int:
        """Tokens to go further into the text."""
        room = self._target.context.n_ctx - len(self._target) - max(_DEEP_WIDTHS)
        n = min(_DEEPER[0], room)
        if n <= 0:
            return 0
        seconds = _timed(self._target, self._target.prefill, [self._token] * n)
        return min(_DEEPER[1], room, int(_DEEPER_SECONDS * n / seconds))

    def _time(self, widths: Sequence[int], times: Sequence[list[float]]) -> None:
        """Passes of some widths where the sequence ends now."""
        for n, timed in zip(widths, times, strict=True):
            start = perf_counter()
            self._pass(n)  # the graph is built
            timed.extend(self._settled(n, start))

    @property
    def _draft_vocabulary(self) -> float:
        """How much of the target's vocabulary a row of the draft has."""
        if self._draft is None:
            return 0.0
        return self._draft.context.model.vocab.n / self._target.context.model.vocab.n

    def row(self, pipeline: Pipeline) -> None:
        logits = self._target.score([self._token])[0].copy()
        self._target.truncate(len(self._target) - 1)
        for _ in range(_ROWS):
            start = perf_counter()
            p = pipeline.distribution(logits, [])
            p.overlap(p)
            self._rows.append(perf_counter() - start)

    def expected(self, n: int) -> float:
        known = self.passes.get(n)
        passes = 2 * (statistics.median(known) if known else n * self.plain)
        return max(passes, (_SETTLED if n > 1 else _PLAIN_SETTLED)[1])

    def steady(self, widths: Sequence[int]) -> bool:
        return all(_is_steady(self.passes.get(n, [])) for n in widths)

    def costs(self, max_width: int) -> Costs:
        known = sorted(self.passes)
        # Of an even number the lower one: what disturbs a pass makes it longer.
        medians = accumulate((statistics.median_low(self.passes[n]) for n in known), max)
        row = statistics.median(self._rows)
        return Costs(
            passes=tuple(_interpolated(known, list(medians), max_width)),
            draft_step=_median(self._draft_steps) + row * self._draft_vocabulary,
            draft_catch_up=_median(self._catch_ups),
            draft_read=_median(self._draft_reads),
            rebuild=_median(self._rebuilds),
            row=row,
            recovery=self._recovery,
            depth=len(self._target),
            deepens=self._deepens,
        )


def _timed(
    sequence: KVSequence | DraftPasses, feed: Callable[[list[int]], object], tokens: list[int]
) -> float:
    """Seconds that `feed`, a method of `sequence`, takes; what it fed is forgotten."""
    depth = len(sequence)
    start = perf_counter()
    feed(tokens)
    seconds = perf_counter() - start
    sequence.truncate(depth)
    return seconds


def _median(times: Sequence[float]) -> float:
    return statistics.median(times) if times else 0.0


def _is_steady(times: Sequence[float]) -> bool:
    if len(times) < _STEADY:
        return False
    middle = statistics.median(times)
    deviation = statistics.median(abs(time - middle) for time in times)
    return deviation < _SPREAD * middle


def _interpolated(known: Sequence[int], seconds: Sequence[float], n: int) -> list[float]:
    """Seconds for 1 .. n tokens: linear between what is known, and on with the last slope."""
    values = np.interp(np.arange(1, n + 1), known, seconds)
    if n > known[-1]:
        steps = np.arange(1, n - known[-1] + 1)
        slope = (
            (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
            if len(known) > 1
            else seconds[-1]  # nothing but a plain step is known: take a pass to be no cheaper
        )
        values[known[-1] :] = seconds[-1] + slope * steps
    return [float(value) for value in values]
