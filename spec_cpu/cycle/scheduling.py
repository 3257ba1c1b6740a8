"""The schedules of a session's drafters, and what passes cost, which they decide by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from spec_cpu import defaults
from spec_cpu.answer.stats import Stats
from spec_cpu.costs.cache import CostCache, known_or_measured
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.acceptance import Calibration, Probability
from spec_cpu.cycle.drafting import Drafting
from spec_cpu.cycle.kept_record import KeptRecord
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.schedule import Scheduler
from spec_cpu.cycle.schedule_base import HOPELESS, Schedule
from spec_cpu.cycle.weigh import Weigher
from spec_cpu.draft.base import Drafter
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import MeasureProgress
from spec_cpu.sampling.pipeline import Pipeline

_ADVANCE = 1.5  # plain steps that look-ups may lose at first: one tree that turns out wrong
_LEFT_OUT = "its drafts did not pay in earlier answers"


class Schedules:
    """One for each drafter, made when it is first needed: costs are looked up or measured then.

    Attributes:
        k: pinned for good; None: chosen each cycle.
        costs: what passes cost here; None until something needed to know.
    """

    def __init__(
        self,
        target: KVSequence,
        drafters: Sequence[Drafter],
        pipeline: Pipeline,
        *,
        k: int | None,
        repeatable: bool,
        recalibrate: bool,
        notify: Callable[[str | None], None],
    ) -> None:
        """Schedule `drafters` for the text in `target`.

        Args:
            repeatable: the choices do not follow the machine's momentary speed.
            recalibrate: measure costs, even if they are known from before.
            notify: told what a person should know.
        """
        self.k = k
        self.costs: Costs | None = None
        self._target = target
        self._drafters = drafters
        self._pipeline = pipeline
        self._repeatable = repeatable
        self._recalibrate = recalibrate
        self._notify = notify
        self._made: dict[str, Drafting] = {}  # by the drafter's name
        self._left_out: list[Drafter] = []  # of this answer, by what earlier ones showed

    def useful(self, k: int | None) -> list[Drafter]:
        """The drafters without those that will not be asked in an answer that pins `k`, or none.

        One that takes passes, and did not pay in earlier answers, is left out of most others.
        """
        self._left_out = []
        if k == 0:
            return []
        if k is not None or self.k is not None:
            return list(self._drafters)
        record = self._record
        if record is not None:
            self._left_out = [
                one for one in self._drafters if not (one.free or record.due(self._kind(one.name)))
            ]
        able = [one for one in self._drafters if one not in self._left_out]
        return [one for one in able if one.name not in self._made or not self._hopeless(one)]

    def _hopeless(self, drafter: Drafter) -> bool:
        return self._made[drafter.name].schedule.hopeless

    def drafting(
        self,
        drafters: Sequence[Drafter],
        k: int | None,
        last: int,
        progress: MeasureProgress | None,
    ) -> list[Drafting]:
        """`drafters` with their schedules: of this answer where it pins `k`, else the usual ones.

        Args:
            last: the text's last token, to measure with.
        """
        if k is not None:
            return [Drafting(drafter, Pinned(k)) for drafter in drafters]
        if any(one.name not in self._made for one in drafters) and self.k is None:
            self.measured(self.most_drafted + 1, last, progress)
        for drafter in drafters:
            if drafter.name not in self._made:
                self._made[drafter.name] = Drafting(drafter, self._schedule(drafter))
        for drafter in self._left_out:  # when it is tried again it begins anew
            self._made.pop(drafter.name, None)
        return [self._made[drafter.name] for drafter in drafters]

    def _schedule(self, drafter: Drafter) -> Schedule:
        if self.k is not None or self.costs is None:
            return Pinned(self.k or 0)
        k_max, share = _most_drafted(drafter), 1.0 / len(self._drafters)
        advance = _ADVANCE if drafter.free else None
        if self._record is not None and not drafter.free:
            advance = self._record.advance(self._kind(drafter.name))
        if drafter.shape == "chain":
            return Scheduler(
                self.costs, k_max=k_max, repeatable=self._repeatable, share=share, advance=advance
            )
        return Weigher(
            self.costs,
            k_max=k_max,
            repeatable=self._repeatable,
            share=share,
            advance=advance,
            free=drafter.free,
            calibration=Calibration() if drafter.free else Probability(),
        )

    def remember(self, stats: Stats) -> None:
        """Keep what an answer says of the drafters that take passes, for those to come.

        Where k is pinned they draft whether it pays or not, which says nothing of them.
        """
        plain, record = stats.plain_tokens_per_second, self._record
        if record is None or self.k is not None or plain is None or not stats.tokens:
            return
        for drafter in self._drafters:
            name, one = self._kind(drafter.name), stats.by_drafter[drafter.name]
            if drafter in self._left_out:
                record.left_out(name, stats.tokens)
            elif not drafter.free:
                record.took_part(name, one.tokens, one.seconds * plain)
        record.write()

    def _kind(self, name: str) -> str:
        """The drafter `name` in the record: what it brings depends on the temperature."""
        return f"{name}, {'greedy' if self._pipeline.params.greedy else 'sampled'}"

    @cached_property
    def _record(self) -> KeptRecord | None:
        """Of earlier answers; None where choices are to be the same again."""
        if self._repeatable or self._draft is None:
            return None
        return KeptRecord(self._cache.record, anew=self._recalibrate)

    @property
    def most_drafted(self) -> int:
        """The most tokens that are drafted a cycle where k is chosen."""
        return max(map(_most_drafted, self._drafters), default=defaults.MAX_AUTO_DRAFT_TOKENS)

    @property
    def why_plain(self) -> str | None:
        """Why nothing is drafted just now, in a person's words; None while drafting."""
        reasons = [one.schedule.reason for one in self._made.values()]
        reasons += [_LEFT_OUT] * len(self._left_out)
        known = [reason for reason in reasons if reason is not None]
        if not reasons or len(known) < len(reasons):
            return None
        own = [reason for reason in known if reason != HOPELESS]
        return "; ".join(own) or HOPELESS

    def known(self) -> Costs | None:
        """Costs known to the session or the disk; None where they were never measured."""
        if self.costs is None and not self._recalibrate:
            costs = self._cache.read(1)
            self.costs = None if costs is None else self._windowed(costs)
        return self.costs

    def measured(self, max_width: int, token: int, progress: MeasureProgress | None) -> Costs:
        """Costs known to the session or the disk, or measured where both sequences end now."""
        if self.costs and len(self.costs.passes) >= max_width:
            return self.costs
        draft = self._draft
        costs, notice = known_or_measured(
            self._target,
            token,
            max_width=max_width,
            pipeline=self._pipeline,
            draft=draft.sequence if draft else None,
            anew=self._recalibrate,
            progress=progress,
        )
        self._notify(notice)
        self.costs = self._windowed(costs)
        return self.costs

    def _windowed(self, costs: Costs) -> Costs:
        """With the window of this session's draft, which the file does not know."""
        return replace(costs, draft_window=self._draft.window if self._draft else None)

    @property
    def _cache(self) -> CostCache:
        draft = self._draft
        draft_context = draft.sequence.context if draft and draft.sequence else None
        return CostCache(self._target.context, draft_context)

    @property
    def _draft(self) -> Drafter | None:
        """The drafter that takes passes, if one does."""
        return next((one for one in self._drafters if one.sequence is not None), None)


def _most_drafted(drafter: Drafter) -> int:
    tree = drafter.shape == "tree"
    return defaults.MAX_TREE_NODES if tree else defaults.MAX_AUTO_DRAFT_TOKENS
