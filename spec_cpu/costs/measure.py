"""Measures what passes cost here, with the loaded models."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from spec_cpu.costs.costs import Costs
from spec_cpu.machine.disturbance import disturbance, spent
from spec_cpu.progress import MeasureProgress

if TYPE_CHECKING:
    from spec_cpu.draft.base import DraftPasses
    from spec_cpu.llama.sequence import KVSequence
    from spec_cpu.sampling.pipeline import Pipeline

_FIRST = (2, 4, 8)  # widths that are timed first, after 1: V bends between these
_LEAST = 2  # is timed whatever that takes: without it nothing is known of V
_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32)  # then all; between them V is interpolated
_TIME = 2.8  # seconds in all: with what goes beyond, less than 3
_TINY_TIMES = (1.4, 2.0)  # of a tiny model: until when passes are timed, and how they recover
_SPREAD = 0.03  # relative: medians this steady need no more rounds
_APART = 0.25  # relative: where the middle half of passes is farther apart, something disturbs them
_ENOUGH = 12  # passes before that can be told
_ROWS = 5
_BATCH = 16  # tokens in a batch when the draft's catching up is timed
_READINGS = 4  # such batches
_STEADY = 3  # rounds before medians may count as steady
_UNDISTURBED = 2  # passes of a width, so that one of them may be held up
_REBUILD_MATTERS_BELOW = 0.05  # seconds of a plain step: a larger model hides a graph's building
_SETTLED = (0.02, 0.05)  # seconds of passes of a width before they count, and until the next width
_PLAIN_SETTLED = (0.1, 0.15)
_DEEP_WIDTHS = (8, 1)  # timed again further into a text: what they grow by is a line in n
_DEEP_PASSES = 6  # of each
_TINY = 0.015  # seconds of a plain step: in a larger model's, attention and clock matter little
_WIDE = 4  # tokens in a pass after which the clock recovers
_RECOVERED = 12  # plain steps later
_RECOVERIES = 5
_DEEPER = (128, 512)  # tokens further: at least, for a difference to be seen, and at most
_DEEPER_SECONDS = 0.25  # that reading them may take
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

    It takes 3 s at most: the widths 1, 2, 4 and 8 first, then rounds over all, until the medians
    are steady or the time is up. Of a model with slow steps fewer passes are timed, but those over
    1 and 2 tokens in any case. What was not reached is interpolated, and corrected by the run. Of a
    tiny model half of the time goes into what further context adds, and how the clock recovers.

    Other programs, or other guests of the same host, may disturb this: `Costs.disturbed` says so,
    and the quickest passes count then in place of the median ones.

    Args:
        token: fed again and again at the end of both sequences, which are left as they were.
        max_width: the widest target pass to know about.
        pipeline: whose time a row is measured.
        draft: the draft's passes, if a model or a head drafts.
        progress: told after each width.
    """
    before = spent()
    bench = _Bench(target, token, draft, progress)
    bench.row(pipeline)
    bench.target_pass(1)
    room = min(max_width, target.context.n_ctx - len(target), target.context.max_outputs)
    tiny = bench.plain < _TINY
    _measure_rounds(bench, [n for n in _WIDTHS if n <= room], _TINY_TIMES[0] if tiny else _TIME)
    if tiny:
        bench.recover(min(_WIDE, room), _TINY_TIMES[1])
        bench.deepen([n for n in _DEEP_WIDTHS if n <= room], max_width)
    why = disturbance(before, spent(), target.context.threads) or bench.unsteady
    return bench.costs(max_width, why or "")


def _measure_rounds(bench: _Bench, widths: list[int], until: float) -> None:
    for n in widths:
        if n == _LEAST or (n in _FIRST and bench.fits(n, until)):
            bench.target_pass(n)
    # Up, then down, so that the clock changes little from one width to the next.
    while not bench.steady(widths) and _round(bench, widths, until):
        widths = widths[::-1]


def _round(bench: _Bench, widths: list[int], until: float) -> bool:
    """Measure each width once more; False if that took all the time there was."""
    for n in widths:
        if not bench.fits(n, until):
            return False
        bench.target_pass(n)
    return True


class _Bench:
    """Timed passes of both models, and what they come to."""

    def __init__(
        self,
        target: KVSequence,
        token: int,
        draft: DraftPasses | None,
        progress: MeasureProgress | None,
    ) -> None:
        self.passes: dict[int, list[float]] = {}
        self._progress = progress
        self._target = target
        self._draft = draft
        self._token = token
        self._rebuilds: list[float] = []
        self._draft_steps: list[float] = []
        self._draft_reads: list[float] = []
        self._catch_ups: list[float] = []
        self._rows: list[float] = []
        self._first = 0.0  # seconds of the very first pass
        self._drafting = 0.0  # of the draft's passes after the latest width
        self._deepens: tuple[float, ...] = ()
        self._recovery = 0.0
        self._start = perf_counter()

    @property
    def spent(self) -> float:
        return perf_counter() - self._start

    @property
    def plain(self) -> float:
        """The quickest pass over one token so far: the one that was disturbed least."""
        return min(self.passes.get(1, [self._first]))

    @property
    def _slow(self) -> bool:
        """Does a pass take so long that each one is timed, as it comes?"""
        return self.plain > _REBUILD_MATTERS_BELOW

    def _told(self) -> None:
        if self._progress is not None:
            self._progress(min(self.spent, _TIME), _TIME)

    def target_pass(self, n: int) -> None:
        """Passes of one width: the first builds its graph, the last ones show what it takes.

        A processor lowers its clock for wide passes, and raises it again in the course of many. So
        each width is timed as it is used: plain steps after plain steps, and wider passes after
        the draft's.
        """
        start = perf_counter()
        slow = self._slow
        first = self._pass(n)
        times = self.passes.setdefault(n, [])
        if slow:
            times.append(first)
        else:
            self._rebuilds.append(max(0.0, first - self._pass(n)))
            times += self._settled(n, start, drafting=n > 1)
        begin = perf_counter()
        self._draft_pass()
        self._time_reading()
        self._drafting = perf_counter() - begin
        self._told()

    def fits(self, n: int, until: float) -> bool:
        """Can passes of this width end before `until`, in seconds from the beginning?"""
        known = sorted(self.passes)
        typical = [statistics.median_low(self.passes[each]) for each in known]
        one = _interpolated(known, typical, max(n, known[-1]))[n - 1]
        settled = _SETTLED if n > 1 else _PLAIN_SETTLED
        passes = one if self._slow else max((2 + _UNDISTURBED) * one, settled[1])
        return self.spent + passes + self._drafting <= until

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
        if draft is not None and len(self._draft_reads) < _READINGS:
            n = min(_BATCH, draft.context.n_ctx - len(draft))
            self._draft_reads.append(_timed(draft, draft.prefill, [self._token] * n) / n)
            _timed(draft, draft.score, [self._token])  # a first step finds this one's graph

    def recover(self, wide: int, until: float) -> None:
        """See what plain steps lose after a pass over `wide` tokens."""
        if wide < 2:
            return
        for _ in range(_RECOVERED):  # from what was measured before
            self._pass(1)
        usual: list[float] = []
        after: list[list[float]] = [[] for _ in range(_RECOVERED)]
        for done in range(_RECOVERIES):
            if done and self.spent > until:
                break
            for _ in after:
                usual.append(self._pass(1))
            self._draft_pass()
            self._pass(wide)
            for times in after:
                times.append(self._pass(1))
        lost = sum(map(_median, after)) - len(after) * _median(usual)
        self._recovery = max(0.0, lost - _median(self._rebuilds))
        self._told()

    def _pass(self, n: int) -> float:
        """Seconds of a target pass over n tokens."""
        return _timed(self._target, self._target.score, [self._token] * n)

    def deepen(self, widths: Sequence[int], max_width: int) -> None:
        """See what further context adds, if that many tokens are read in a moment.

        Near and far are timed by turns: a change of the machine's pace must not look like this.
        """
        tokens = 0
        here: list[list[float]] = [[] for _ in widths]
        there: list[list[float]] = [[] for _ in widths]
        depth = len(self._target)
        passes = sum(min(self.passes[n]) for n in widths if n in self.passes)
        round_takes = 2 * (1 + _DEEP_PASSES) * passes + _DEEPER_SECONDS
        if len(widths) < 2 or self.spent + round_takes > _TIME:
            return
        for _ in range(_DEEP_ROUNDS):
            start = self.spent
            self._time(widths, here)
            tokens = self._go_deeper(tokens)
            if tokens:
                self._time(widths, there)
            self._target.truncate(depth)
            self._told()
            if not tokens:
                return
            if 2 * self.spent - start > _TIME:  # another such round would end later
                break
        more = [(_median(b) - _median(a)) / tokens for a, b in zip(here, there, strict=True)]
        slope, base = np.polyfit(widths, more, 1)
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

    def _go_deeper(self, tokens: int) -> int:
        """Read `tokens` further, or as many as a moment allows where it is 0; 0: too few."""
        least, most = _DEEPER
        if tokens:
            self._target.prefill([self._token] * tokens)
            return tokens
        room = self._target.context.n_ctx - len(self._target) - max(_DEEP_WIDTHS)
        if room < least:
            return 0
        begin = perf_counter()
        self._target.prefill([self._token] * least)
        seconds = perf_counter() - begin
        tokens = min(most, room, int(_DEEPER_SECONDS * least / seconds))
        if tokens > least:
            self._target.prefill([self._token] * (tokens - least))
        return tokens if tokens >= least else 0

    def _time(self, widths: Sequence[int], times: Sequence[list[float]]) -> None:
        """Passes of some widths where the sequence ends now."""
        for n, timed in zip(widths, times, strict=True):
            self._pass(n)  # the graph is built
            timed += [self._pass(n) for _ in range(_DEEP_PASSES)]

    @property
    def _draft_vocabulary(self) -> float:
        """How much of the target's vocabulary a row of the draft has."""
        if self._draft is None:
            return 0.0
        return self._draft.context.model.vocab.n / self._target.context.model.vocab.n

    def row(self, pipeline: Pipeline) -> None:
        """Time the sampling of a row, and the first of all passes, which gives it."""
        start = perf_counter()
        logits = self._target.score([self._token])[0].copy()
        self._first = perf_counter() - start
        self._target.truncate(len(self._target) - 1)
        for _ in range(_ROWS):
            start = perf_counter()
            p = pipeline.distribution(logits, [])
            p.overlap(p)
            self._rows.append(perf_counter() - start)

    @property
    def unsteady(self) -> str | None:
        """What passes say of a disturbance, in a person's words, compared within their width."""
        longer = [seconds / min(times) for times in self.passes.values() for seconds in times]
        if len(longer) < _ENOUGH:
            return None
        quicker, _, slower = statistics.quantiles(longer, n=4)
        if slower - quicker <= _APART:
            return None
        return f"a quarter of the passes took {slower:.1f} times as long as others like them"

    def steady(self, widths: Sequence[int]) -> bool:
        return all(_is_steady(self.passes.get(n, [])) for n in widths)

    def costs(self, max_width: int, disturbed: str) -> Costs:
        known = sorted(self.passes)
        # What disturbs a pass makes it longer: so of an even number of passes the lower median.
        typical = min if disturbed else statistics.median_low
        # These are small differences of such times, of which a disturbance leaves nothing that can
        # be relied on; where they look too large, drafting is never tried and they never corrected.
        usual = _least if disturbed else _median
        seconds = accumulate((typical(self.passes[n]) for n in known), max)
        row = statistics.median(self._rows)
        return Costs(
            passes=tuple(_interpolated(known, list(seconds), max_width)),
            draft_step=usual(self._draft_steps) + row * self._draft_vocabulary,
            draft_catch_up=usual(self._catch_ups),
            draft_read=usual(self._draft_reads),
            rebuild=usual(self._rebuilds),
            row=row,
            recovery=0.0 if disturbed else self._recovery,
            depth=len(self._target),
            deepens=self._deepens,
            disturbed=disturbed,
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


def _least(times: Sequence[float]) -> float:
    return min(times, default=0.0)


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
