"""One request at work: its prompt is read in parts, then its text goes on cycle by cycle."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spec_cpu.answer.ending import Ending
from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.answer.steps import Step, Steps, origins
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.decode import Cycle, Text
from spec_cpu.cycle.drafting import Decides, Drafting
from spec_cpu.cycle.verify import RULES
from spec_cpu.draft.base import Source
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.draft.tree import ROOT
from spec_cpu.errors import SpecCpuError
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.logits import RowOps
from spec_cpu.sampling.pipeline import Pipeline
from spec_cpu.serve.engine.request import (
    Deliver,
    Delta,
    Ended,
    Event,
    Failed,
    Reading,
    Request,
    Token,
)
from spec_cpu.serve.engine.slots import Slot

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all answers of an engine have in common.

    Attributes:
        ctx: tokens that a conversation may have.
        policy: makes what decides how much is drafted for a text, from its sources.
        costs: what passes cost here; None: nobody asked.
        draws: may tokens be drawn from a draft, where no seed is to give the same text again?
    """

    ctx: int
    row_ops: RowOps
    policy: Callable[[Sequence[Source], bool], Decides]
    costs: Costs | None
    draws: bool


class Answer:
    """A request, from the queue to its last event.

    Attributes:
        cancelled: is nobody interested any more?
        slot: where it is answered; None while it waits.
        text: what is continued, once the prompt was read.
    """

    def __init__(self, number: int, request: Request, deliver: Deliver, settings: Settings) -> None:
        self.number = number
        self.request = request
        self.cancelled = False
        self.over = False
        self.slot: Slot | None = None
        self.text: Text | None = None
        self.stats = Stats()
        self._deliver = deliver
        self._settings = settings
        self._seed = secrets.randbits(32) if request.seed is None else request.seed
        self._reused = 0
        self._steps: Steps | None = None

    # -- reading ------------------------------------------------------------------------------

    def begin(self, slot: Slot) -> None:
        """It is answered in `slot`, where the beginning of its prompt may be known."""
        self.slot = slot
        self._sources = [*slot.sources]
        if self.request.references and slot.sources:
            self._sources.append(NgramSource(self.request.references))
        for source in self._sources:
            self.stats.by_source.setdefault(source.name, SourceStats())
        prompt = self.request.tokens
        known = slot.sequence.reuse(prompt[:-1])
        self._wanted = max((source.lacks(prompt) for source in self._sources), default=0)
        if self._wanted:  # rows in the cache whose features were not kept are read again
            known = slot.sequence.reuse(prompt[: min(known, len(prompt) - 1 - self._wanted)])
        self._reused = known

    @property
    def unread(self) -> int:
        """Tokens of the prompt that are to be read, but for its last one."""
        assert self.slot is not None
        return len(self.request.tokens) - 1 - len(self.slot.sequence)

    def read(self, most: int) -> int:
        """Read up to about `most` tokens more of the prompt, and say how many."""
        assert self.slot is not None
        sequence, prompt = self.slot.sequence, self.request.tokens
        before, end = len(sequence), len(prompt) - 1
        if self.unread > self._wanted:
            to = min(before + most, end - self._wanted)
            sequence.prefill(prompt[before:to])
        if self.unread <= self._wanted:
            self._begin_text(sequence)
        else:
            for source in self._sources:  # their share of the work is spread, too
                if source.sequence is not None and not source.by_features:
                    source.begin(prompt[: len(sequence) + 1])
        self._tell(Reading(len(sequence), end))
        return len(sequence) - before

    def _begin_text(self, sequence: KVSequence) -> None:
        """Read the end of the prompt, of which a source may want the features, and begin."""
        request, settings = self.request, self._settings
        prompt = list(request.tokens)
        features = None
        if self._wanted:
            features = sequence.prefill_hidden(prompt[len(sequence) : -1], self._wanted)
        for source in self._sources:
            source.begin(prompt, features=features)
        vocab = sequence.context.model.vocab
        ending = Ending(vocab, request.stops, ignore_eos=request.ignore_eos)
        room = settings.ctx - len(prompt)
        most = settings.ctx if request.max_tokens is None else request.max_tokens
        self._steps = Steps(ending.stream(), ends=ending.tokens, max_tokens=most, room=room)
        seeded = request.seed is not None
        self.text = Text(
            prompt,
            sequence,
            Drafting(
                self._sources,
                self._policy(seeded=seeded),
                ends=vocab.end_tokens,
                draws=settings.draws and not seeded,
            ),
            Pipeline(ending.restrict(request.sampling), settings.row_ops),
            RULES[request.rule],
            np.random.default_rng(self._seed),
            end=len(prompt) + min(most, room),
            logprobs=request.logprobs,
        )
        self.stats.prompt_tokens, self.stats.reused_tokens = len(prompt), self._reused
        self.stats.plain.begin(settings.costs if self._sources else None)

    def _policy(self, *, seeded: bool) -> Decides:
        """What decides how much is drafted. With a seed nothing learnt before has a say in it."""
        assert self.slot is not None
        make = self._settings.policy
        if seeded:
            return make(self._sources, True)
        greedy = self.request.sampling.greedy
        if greedy not in self.slot.policies:
            self.slot.policies[greedy] = make(self._sources, False)
        policy = self.slot.policies[greedy]
        policy.begin()
        return policy

    # -- telling ------------------------------------------------------------------------------

    def take(self, cycle: Cycle) -> Step:
        """A cycle of its text is done: what it brought."""
        assert self._steps is not None
        step = self._steps.step(cycle)
        self.stats.add(cycle, len(step.tokens))
        return step

    def tell(self, step: Step) -> None:
        """Tell what a cycle brought, and that it was the last one, if so."""
        drafted, accepted = step.cycle.drafted, step.cycle.accepted
        self._tell(Delta(step.pieces, self._tokens(step), drafted=drafted, accepted=accepted))
        if step.finish:
            self._end(Ended(step.finish, *self._counted))

    def cancel(self) -> None:
        """Nobody is interested any more: it ends within a cycle."""
        self.cancelled = True

    def interrupt(self) -> None:
        """End it as it is."""
        self._end(Ended("interrupted", *self._counted))

    def fail(self, error: SpecCpuError) -> None:
        """End it: it cannot go on."""
        self._end(Failed(error))

    @property
    def _counted(self) -> tuple[int, int, int, Stats]:
        return self._seed, len(self.request.tokens), self._reused, self.stats

    def _end(self, event: Ended | Failed) -> None:
        self.over = True
        if self.slot is not None:
            self.slot.busy = False
        self._tell(event)

    def _tell(self, event: Event) -> None:
        """Whoever listens may fail: that ends this answer, and nothing else."""
        try:
            self._deliver(event)
        except Exception:
            _LOG.exception("what listens to answer %d failed", self.number)
            self.cancel()

    def _tokens(self, step: Step) -> list[Token]:
        cycle = step.cycle
        return [
            Token(
                token,
                origin,
                cycle.names[cycle.path[i]] if i < len(cycle.path) else (),
                _others(cycle, i) if self.request.alternatives else (),
                cycle.logprobs[i] if cycle.logprobs else None,
            )
            for i, (token, origin) in enumerate(zip(step.tokens, origins(cycle), strict=False))
        ]


def _others(cycle: Cycle, i: int) -> list[tuple[int, float]]:
    """What else was drafted at the place of the i-th token, with its chance; best first."""
    parent = cycle.path[i - 1] if i else ROOT
    taken = cycle.path[i] if i < len(cycle.path) else None
    tree = cycle.tree
    others = [(tree.tokens[n], tree.confidence[n]) for n in tree.children(parent) if n != taken]
    return sorted(others, key=lambda one: -one[1])
