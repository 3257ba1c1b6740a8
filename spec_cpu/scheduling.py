"""The schedules of a session's drafters, and what passes cost, which they decide by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spec_cpu import defaults
from spec_cpu.acceptance import Calibration, Probability
from spec_cpu.cost import Costs
from spec_cpu.cost_cache import CostCache, known_or_measured
from spec_cpu.cost_measure import MeasureProgress
from spec_cpu.draft.base import Drafter
from spec_cpu.drafting import Drafting
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.pinned import Pinned
from spec_cpu.sampling import Pipeline
from spec_cpu.schedule import Scheduler
from spec_cpu.schedule_base import HOPELESS, Schedule
from spec_cpu.weigh import Weigher


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
        self._made: list[Drafting] | None = None

    def useful(self, k: int | None) -> list[Drafter]:
        """The drafters without those that will never be asked, where this answer pins `k`."""
        if k == 0:
            return []
        if k is None and self._made is not None:
            return [one.drafter for one in self._made if not one.schedule.hopeless]
        return list(self._drafters)

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
        if k is not None or not drafters:
            return [Drafting(drafter, Pinned(k or 0)) for drafter in drafters]
        if self._made is None:
            self._made = self._make(last, progress)
        return [one for one in self._made if one.drafter in drafters]

    def _make(self, last: int, progress: MeasureProgress | None) -> list[Drafting]:
        if self.k is not None:
            return [Drafting(drafter, Pinned(self.k)) for drafter in self._drafters]
        costs = self.measured(self.most_drafted + 1, last, progress)
        return [Drafting(drafter, self._schedule(drafter, costs)) for drafter in self._drafters]

    def _schedule(self, drafter: Drafter, costs: Costs) -> Schedule:
        k_max, share = _most_drafted(drafter), 1.0 / len(self._drafters)
        if drafter.shape == "chain":
            return Scheduler(costs, k_max=k_max, repeatable=self._repeatable, share=share)
        return Weigher(
            costs,
            k_max=k_max,
            repeatable=self._repeatable,
            share=share,
            free=drafter.free,
            calibration=Calibration() if drafter.free else Probability(),
        )

    @property
    def most_drafted(self) -> int:
        """The most tokens that are drafted a cycle where k is chosen."""
        return max(map(_most_drafted, self._drafters), default=defaults.MAX_AUTO_DRAFT_TOKENS)

    @property
    def why_plain(self) -> str | None:
        """Why nothing is drafted just now, in a person's words; None while drafting."""
        reasons = [one.schedule.reason for one in self._made or ()]
        known = [reason for reason in reasons if reason is not None]
        if not reasons or len(known) < len(reasons):
            return None
        own = [reason for reason in known if reason != HOPELESS]
        return "; ".join(own) or HOPELESS

    def known(self) -> Costs | None:
        """Costs known to the session or the disk; None where they were never measured."""
        if self.costs is None and not self._recalibrate:
            draft = self._draft
            draft_context = draft.sequence.context if draft and draft.sequence else None
            self.costs = CostCache(self._target.context, draft_context).read(1)
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
        self.costs = replace(costs, draft_window=draft.window if draft else None)
        return self.costs

    @property
    def _draft(self) -> Drafter | None:
        """The drafter that takes passes, if one does."""
        return next((one for one in self._drafters if one.sequence is not None), None)


def _most_drafted(drafter: Drafter) -> int:
    tree = drafter.shape == "tree"
    return defaults.MAX_TREE_NODES if tree else defaults.MAX_AUTO_DRAFT_TOKENS
