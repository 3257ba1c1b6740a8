"""What a session has learnt about how much to draft, by the kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spec_cpu.answer.policies import Policies
from spec_cpu.draft.base import Source
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.logits import RowOps
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams


class Choosing:
    """The policies of a session, for greedy and for sampled text apart: drafts differ in worth.

    Attributes:
        latest: of the latest answer; before any, of those to come.
    """

    def __init__(
        self,
        target: KVSequence,
        sources: Sequence[Source],
        row_ops: RowOps,
        *,
        sampling: SamplingParams,
        k: int | None,
        recalibrate: bool,
        notify: Callable[[str | None], None],
    ) -> None:
        """Begin with those for `sampling`. The others: as for `Policies`."""
        self._target = target
        self._sources = sources
        self._row_ops = row_ops
        self._k = k
        self._notify = notify
        self._recalibrate = recalibrate
        self.latest = self._new(sampling)
        self._kept = {sampling.greedy: self.latest}

    def choose(self, sampling: SamplingParams, *, repeatable: bool) -> Policies:
        """Those for an answer, which are the `latest` from then on.

        Args:
            repeatable: nothing that was learnt before decides, nor is anything kept.
        """
        costs = self.latest.costs
        self._recalibrate &= costs is None
        if repeatable:
            for source in self._sources:
                source.forget()
            self.latest = self._new(sampling, repeatable=True)
        else:
            kept = self._kept.get(sampling.greedy)
            self.latest = self._kept[sampling.greedy] = kept or self._new(sampling)
        self.latest.costs = costs
        return self.latest

    def _new(self, sampling: SamplingParams, *, repeatable: bool = False) -> Policies:
        return Policies(
            self._target,
            self._sources,
            Pipeline(sampling, self._row_ops),
            k=self._k,
            repeatable=repeatable,
            recalibrate=self._recalibrate,
            notify=self._notify,
        )
