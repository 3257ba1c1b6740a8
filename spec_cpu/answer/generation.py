"""Text from the models of a session: caches brought to a prompt, then cycle after cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np

from spec_cpu.answer.asked import Asked
from spec_cpu.answer.ending import Ending
from spec_cpu.answer.participants import Participants
from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.answer.steps import Step, Steps, steps
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Text, cycles
from spec_cpu.cycle.drafting import Drafting
from spec_cpu.cycle.prefill import neutral, read_prompt
from spec_cpu.cycle.verify import RULES
from spec_cpu.draft.base import Source
from spec_cpu.llama.context import Context
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.progress import Progress, of_seconds
from spec_cpu.prompt_cache import PromptCache
from spec_cpu.sampling.logits import RowOps
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams
from spec_cpu.text.streaming import TextStream

_MEASURING = "measuring this machine"


class Generation:
    """A target and its sources at work, and what is learnt of them from answer to answer.

    It is learnt for greedy and for sampled text apart, for drafts differ in worth.

    Attributes:
        participants: of the latest answer; before any, of those to come.
    """

    def __init__(
        self,
        context: Context,
        sources: Sequence[Source],
        row_ops: RowOps,
        *,
        sampling: SamplingParams,
        k: int | None,
        recalibrate: bool,
        prompt_cache: PromptCache | None,
        notify: Callable[[str | None], None],
    ) -> None:
        """Begin with the participants for `sampling`. The rest: as for `Participants`.

        Args:
            prompt_cache: for the first prompt.
        """
        self._sequence = KVSequence(context, branches=range(1, context.n_seq))
        self._sources = sources
        self._row_ops = row_ops
        self._k = k
        self._prompt_cache = prompt_cache  # until the first prompt was read
        self._notify = notify
        self._recalibrate = recalibrate
        self.participants = self._new(sampling)
        self._kept = {sampling.greedy: self.participants}

    def __len__(self) -> int:
        """Tokens in the target's cache."""
        return len(self._sequence)

    def choose(self, sampling: SamplingParams, *, repeatable: bool) -> None:
        """Choose the participants of an answer.

        Args:
            repeatable: nothing that was learnt before decides, nor is anything kept.
        """
        costs = self.participants.costs
        self._recalibrate &= costs is None
        if repeatable:
            for source in self._sources:
                source.forget()
            self.participants = self._new(sampling, repeatable=True)
        else:
            kept = self._kept.get(sampling.greedy)
            self.participants = self._kept[sampling.greedy] = kept or self._new(sampling)
        self.participants.costs = costs

    def _new(self, sampling: SamplingParams, *, repeatable: bool = False) -> Participants:
        return Participants(
            self._sequence,
            self._sources,
            Pipeline(sampling, self._row_ops),
            k=self._k,
            repeatable=repeatable,
            recalibrate=self._recalibrate,
            notify=self._notify,
        )

    def read(
        self,
        tokens: list[int],
        sources: Sequence[Source],
        counted: Iterable[Stats],
        progress: Progress,
    ) -> None:
        """Bring the caches to the prompt without its last token."""
        start = perf_counter()
        cache, self._prompt_cache = self._prompt_cache, None
        if cache is not None:
            self._notify(cache.restore(self._sequence, tokens))
        known = read_prompt(self._sequence, tokens, sources, progress)
        if cache is not None:
            self._notify(cache.keep(self._sequence))
        seconds = perf_counter() - start
        for stats in counted:
            stats.prompt_tokens += len(tokens)
            stats.reused_tokens += known
            stats.prefill += seconds
            for source in self._sources:
                stats.by_source.setdefault(source.name, SourceStats())

    def steps(
        self,
        asked: Asked,
        tokens: list[int],
        sources: Sequence[Source],
        ending: Ending,
        stream: TextStream,
        seed: int | None,
        counted: Iterable[Stats],
        progress: Progress,
    ) -> Iterator[Step]:
        """The steps of the answer to a prompt that was read; costs are measured now, if need be."""
        n_ctx = self._sequence.context.n_ctx
        text = Text(
            list(tokens),
            self._sequence,
            self._drafting(sources, asked.k, tokens[-1], counted, progress),
            Pipeline(ending.restrict(asked.sampling), self._row_ops),
            RULES[asked.rule],
            np.random.default_rng(seed),
            end=min(len(tokens) + asked.max_tokens, n_ctx),
        )
        answer = Steps(
            stream, ends=ending.tokens, max_tokens=asked.max_tokens, room=n_ctx - len(tokens)
        )
        return steps(cycles(text), answer)

    def _drafting(
        self,
        sources: Sequence[Source],
        k: int | None,
        last: int,
        counted: Iterable[Stats],
        progress: Progress,
    ) -> Drafting:
        start = perf_counter()
        told = of_seconds(progress, _MEASURING)
        drafting = self.participants.drafting(sources, k, last, told)
        seconds = perf_counter() - start
        costs = self.participants.known() if sources else None
        for stats in counted:
            stats.calibrate += seconds
            stats.plain.begin(costs)
        return drafting

    def measured(
        self, max_width: int, depth: int, *, reading: Progress, measuring: Progress
    ) -> Costs:
        """What passes of up to `max_width` tokens cost, `depth` tokens into a text."""
        tokens = neutral(self._sequence.context.model.vocab, depth + 1)
        read_prompt(self._sequence, tokens, self._sources, reading)
        told = of_seconds(measuring, _MEASURING)
        return self.participants.measured(max_width, tokens[-1], told, rough=False).at(depth)
