"""Who drafts in an answer: the sources that take part, and the policy that decides for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

from spec_cpu import defaults
from spec_cpu.answer.stats import Stats
from spec_cpu.costs import acceptance
from spec_cpu.costs.acceptance import Acceptance
from spec_cpu.costs.cache import CostCache, contradicted, known_or_measured, old, timed
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.kept_record import KeptRecord
from spec_cpu.cycle.drafting import Drafting
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.policy import HOPELESS, Policy, never_pays
from spec_cpu.draft.base import Source
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.machine.disturbance import disturbance, spent
from spec_cpu.progress import MeasureProgress
from spec_cpu.sampling.pipeline import Pipeline

_LEFT_OUT = "its drafts did not pay in earlier answers"


class Participants:
    """The sources that take part in a session's answers of one kind, and what decides for them.

    A policy is made when it is first needed: costs are looked up or measured then.

    Attributes:
        k: pinned for good; None: chosen each cycle.
        costs: what passes cost here; None until something needed to know.
    """

    def __init__(
        self,
        target: KVSequence,
        sources: Sequence[Source],
        pipeline: Pipeline,
        *,
        k: int | None,
        repeatable: bool,
        recalibrate: bool,
        notify: Callable[[str | None], None],
    ) -> None:
        """Decide for `sources` and the text in `target`.

        Args:
            repeatable: the choices do not follow the machine's momentary speed.
            recalibrate: measure costs, even if they are known from before.
            notify: told what a person should know.
        """
        self.k = k
        self.costs: Costs | None = None
        self._target = target
        self._sources = sources
        self._pipeline = pipeline
        self._repeatable = repeatable
        self._recalibrate = recalibrate
        self._notify = notify
        self._made: dict[tuple[str, ...], Drafting] = {}  # by the names of those who take part
        self._latest: Drafting | None = None
        self._left_out: list[Source] = []  # of this answer, by what earlier ones showed
        self._begun = spent()  # when this answer began

    def useful(self, k: int | None) -> list[Source]:
        """The sources without those that will not be asked in an answer that pins `k`, or none.

        One that takes passes, and did not pay in earlier answers, is left out of most others.
        """
        self._left_out = []
        self._begun = spent()
        if k == 0:
            return []
        if k is not None or self.k is not None:
            return list(self._sources)
        record = self._record
        if record is not None:
            self._left_out = [
                one
                for one in self._sources
                if one.sequence is not None and not record.due(self._kind(one.name))
            ]
        able = [one for one in self._sources if one not in self._left_out]
        made = self._made.get(_names(able))
        return [] if made is not None and made.policy.hopeless else able

    def drafting(
        self,
        sources: Sequence[Source],
        k: int | None,
        last: int,
        progress: MeasureProgress | None,
    ) -> Drafting:
        """`sources` and what decides for them: an answer's own where it pins `k`, else the usual.

        Args:
            last: the text's last token, to measure with.
        """
        ends = self._target.context.model.vocab.end_tokens
        if k is None:
            k = self.k
        if k is not None or not sources:
            return Drafting(sources, Pinned(k or 0), ends=ends)
        names = _names(sources)
        if names not in self._made:
            costs = self.measured(self.most_drafted + 1, last, progress)
            self._made[names] = Drafting(sources, self._policy(sources, costs), ends=ends)
        self._latest = self._made[names]
        self._latest.policy.begin()
        if self._left_out:  # when it is tried again it begins anew
            self._made = {names: self._latest}
        return self._latest

    def _policy(self, sources: Sequence[Source], costs: Costs) -> Policy:
        passes = next((one for one in sources if one.sequence is not None), None)
        explore = None
        if passes is not None and self._record is not None:
            explore = self._record.advance(self._kind(passes.name))
        paths = self._target.paths
        return policy_for(sources, costs, paths, repeatable=self._repeatable, explore=explore)

    def remember(self, stats: Stats) -> None:
        """Keep what an answer says of the sources and of what passes cost, for those to come.

        Where k is pinned they draft whether it pays or not, which says nothing of them.
        """
        record = self._record
        if record is None or self.k is not None or not stats.tokens:
            return
        self._doubt_costs(stats)
        for name, counted in stats.by_source.items():
            record.tried(self._kind(name), counted.accepted, counted.tried)
        if self._draft is not None:
            self._remember_draft(record, self._kind(self._draft.name), stats.tokens)
        record.write()

    def _remember_draft(self, record: KeptRecord, name: str, tokens: int) -> None:
        """Keep what the source that takes passes brought, or saves for its next try."""
        if self._draft in self._left_out:
            record.left_out(name, tokens)
        elif self._latest is not None and isinstance(self._latest.policy, Policy):
            record.took_part(name, *self._latest.policy.brought)
            self._latest.policy.brought = [0.0, 0.0]

    def _doubt_costs(self, stats: Stats) -> None:
        """Have costs measured again at the next start where an undisturbed answer contradicts."""
        depth = stats.prompt_tokens + stats.tokens // 2
        if self.costs is None or not contradicted(self.costs, stats.passes, depth):
            return
        if disturbance(self._begun, spent(), self._target.context.threads) is None:
            self._cache.doubt(self.costs)

    @property
    def acceptance(self) -> Acceptance | None:
        """How often tokens of the draft, or else those looked up, are accepted, if that is known.

        From earlier answers, greedy and sampled ones; else from a head's own file; else assumed,
        but None where guesses are looked up: how much a text repeats itself is not known before.
        """
        draft = self._draft
        names = [one.name for one in ([draft] if draft else self._sources)]
        kinds = [f"{name}, {kind}" for name in names for kind in ("greedy", "sampled")]
        counts = [self._record.accepted(kind) for kind in kinds] if self._record else []
        seen = acceptance.of_runs(sum(a for a, _ in counts), sum(n for _, n in counts))
        card = acceptance.of_card(getattr(draft, "acceptance", ()))
        return seen or card or (acceptance.assumed() if draft else None)

    def _kind(self, name: str) -> str:
        """The source `name` in the record: what it brings depends on the temperature."""
        return f"{name}, {'greedy' if self._pipeline.params.greedy else 'sampled'}"

    @cached_property
    def _record(self) -> KeptRecord | None:
        """Of earlier answers; None where choices are to be the same again."""
        if self._repeatable:
            return None
        return KeptRecord(self._cache.record, anew=self._recalibrate)

    @property
    def most_drafted(self) -> int:
        """The most nodes that a tree has where their number is chosen."""
        return most_drafted(self._target.paths)

    @property
    def why_plain(self) -> str | None:
        """Why nothing is drafted just now, in a person's words; None while drafting."""
        if self._latest is None:
            return _LEFT_OUT if self._left_out else None
        reason = self._latest.policy.reason
        if reason == HOPELESS and self.costs is not None:
            return f"{HOPELESS} ({timed(self.costs)}; `recalibrate` times it again)"
        if reason is None or not self._left_out:
            return reason
        return f"{reason}; {_LEFT_OUT}"

    def known(self) -> Costs | None:
        """Costs known to the session or the disk; None where they were never measured."""
        if self.costs is None and not self._recalibrate:
            costs = self._cache.read(1, len(self._target))
            self.costs = None if costs is None else self._windowed(costs)
        return self.costs

    def measured(
        self,
        max_width: int,
        token: int,
        progress: MeasureProgress | None,
        *,
        rough: bool = True,
    ) -> Costs:
        """Costs known to the session or the disk, or measured where both sequences end now.

        What rules drafting out is measured again after a day.

        Args:
            rough: are those good enough that were measured with more or less context, or that are
                doubtful? See `CostCache.read`.
        """
        if rough and self.costs and len(self.costs.passes) >= max_width:
            return self.costs
        draft = self._draft
        look_up = partial(
            known_or_measured,
            self._target,
            token,
            max_width=max(max_width, defaults.MAX_TREE_NODES + 1),  # whoever asks: one file for all
            pipeline=self._pipeline,
            draft=draft.sequence if draft else None,
            rough=rough,
            progress=progress,
        )
        costs, notice = look_up(anew=self._recalibrate)
        if old(costs) and never_pays(costs.at(0), self.most_drafted):
            costs, notice = look_up(anew=True)
        self._notify(notice)
        self.costs = self._windowed(costs)
        return self.costs

    def _windowed(self, costs: Costs) -> Costs:
        """With the window of this session's draft, which the file does not know."""
        return replace(costs, draft_window=self._draft.window if self._draft else None)

    @property
    def _cache(self) -> CostCache:
        draft = self._draft
        passes = None if draft is None else draft.sequence  # which is empty, and false, at first
        return CostCache(self._target.context, None if passes is None else passes.context)

    @property
    def _draft(self) -> Source | None:
        """The source that takes passes, if one does."""
        return next((one for one in self._sources if one.sequence is not None), None)


def policy_for(
    sources: Sequence[Source],
    costs: Costs,
    paths: int,
    *,
    repeatable: bool,
    explore: float | None = None,
) -> Policy:
    """What decides for `sources`, whose trees have up to `paths` paths. The rest: as `Policy`."""
    most = most_drafted(paths)
    return Policy(
        costs,
        most=most,
        deepest=min(most, defaults.MAX_AUTO_DRAFT_TOKENS),
        passes=any(one.sequence is not None for one in sources),
        repeatable=repeatable,
        explore=explore,
    )


def most_drafted(paths: int) -> int:
    """The most nodes of trees of up to `paths` paths, where their number is chosen."""
    return defaults.MAX_TREE_NODES if paths > 1 else defaults.MAX_AUTO_DRAFT_TOKENS


def _names(sources: Sequence[Source]) -> tuple[str, ...]:
    return tuple(one.name for one in sources)
