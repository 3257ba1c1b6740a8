"""Room for conversations: which one a prompt gets, and what of it is known there already."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from spec_cpu.cycle.drafting import Decides
from spec_cpu.draft.base import Source
from spec_cpu.llama.context import Saved
from spec_cpu.llama.sequence import KVSequence, shared_prefix
from spec_cpu.serve.engine.cells import Cells

_WORTH_KEEPING = 64  # tokens: fewer are read again in no time


class Slot:
    """Room for one conversation: a sequence of the target's cache, and sources of its own.

    Attributes:
        busy: is an answer under way in it?
        used: a number that grows each time that one is used.
        policies: for greedy and for sampled text: what was learnt of how far drafting pays, which
            says nothing of what was said.
    """

    def __init__(self, sequence: KVSequence, sources: Sequence[Source]) -> None:
        self.sequence = sequence
        self.sources = sources
        self.busy = False
        self.used = 0
        self.policies: dict[bool, Decides] = {}

    def clear(self) -> None:
        """Forget all that is known in it."""
        self.sequence.truncate(0)
        for source in self.sources:
            source.forget()


class Slots:
    """All slots, and the beginnings of texts that were kept for later prompts."""

    def __init__(
        self, slots: Sequence[Slot], cells: Cells, kept: KeptTexts, *, forgets: bool
    ) -> None:
        """All of them idle, with sequences of `cells`.

        Args:
            forgets: is nothing drafted for one conversation that was said in another?
        """
        self._forgets = forgets
        self._slots = slots
        self._cells = cells
        self._kept = kept
        self._uses = 0

    def __len__(self) -> int:
        return len(self._slots)

    def take(self, prompt: Sequence[int]) -> Slot | None:
        """A slot for `prompt`, in which as much of it is known as of any; None: all are busy.

        A slot whose text goes on is best. Else the one that was not used for longest makes room:
        its text is kept aside, and it begins with what another one, or a text kept aside, has of
        this prompt.
        """
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            return None
        known = {slot: shared_prefix(slot.sequence.tokens, prompt) for slot in self._slots}
        found = self._kept.find(prompt)
        most = max(*known.values(), 0 if found is None else found.known)
        best = max(idle, key=lambda slot: (known[slot], -len(slot.sequence)))
        goes_on = known[best] == len(best.sequence)
        # More than half of its text goes on: what would be lost is the lesser part.
        if known[best] < most or 2 * known[best] <= len(best.sequence):
            best, goes_on = min(idle, key=lambda slot: slot.used), False
            self._begin_anew(best, known, found)
        if self._forgets and not goes_on:
            for source in best.sources:  # what one client said is not drafted for another
                source.forget()
        self._uses += 1
        best.busy, best.used = True, self._uses
        return best

    def close(self) -> None:
        """Close all sources, and what they draft with."""
        for slot in self._slots:
            for source in slot.sources:
                source.close()

    def _begin_anew(self, slot: Slot, known: dict[Slot, int], found: Kept | None) -> None:
        """Keep the text of `slot` aside, and begin with what is known of the prompt elsewhere."""
        self._kept.keep(slot.sequence)
        other = max(self._slots, key=lambda one: known[one])
        if found is not None and found.known > known[other]:
            slot.sequence.truncate(0)
            self._cells.make_room(len(found.text))
            if slot.sequence.set_state(found.state, found.text):
                slot.sequence.truncate(found.known)
        elif other is slot:
            slot.sequence.truncate(known[slot])
        else:
            slot.sequence.share(other.sequence, known[other])


@dataclass(frozen=True, slots=True)
class Kept:
    """A text that was kept: what the cache held of it, and how much of a prompt it begins with."""

    text: Sequence[int]
    state: Saved
    known: int


class KeptTexts:
    """Copies of what the cache held of texts that had to make room, the latest used last."""

    def __init__(self, most_bytes: int) -> None:
        """Keep up to `most_bytes`; 0: nothing."""
        self._most = most_bytes
        self._bytes = 0
        self._texts: OrderedDict[tuple[int, ...], Saved] = OrderedDict()

    def keep(self, sequence: KVSequence) -> None:
        """Keep the text of `sequence`, and let go of the oldest ones where that is too much."""
        if self._most == 0 or len(sequence) < _WORTH_KEEPING:
            return
        state = sequence.state()
        if len(state) > self._most:
            return
        text = tuple(sequence.tokens)
        for other in [one for one in self._texts if text[: len(one)] == one]:
            self._let_go(other)  # all of it is in this one
        self._texts[text] = state
        self._bytes += len(state)
        while self._bytes > self._most:
            self._let_go(next(iter(self._texts)))

    def _let_go(self, text: tuple[int, ...]) -> None:
        self._bytes -= len(self._texts.pop(text))

    def find(self, prompt: Sequence[int]) -> Kept | None:
        """The kept text that begins most like `prompt`, if that is worth its while."""
        common = {text: shared_prefix(text, prompt) for text in self._texts}
        text = max(common, key=lambda one: common[one], default=())
        if common.get(text, 0) < _WORTH_KEEPING:
            return None
        self._texts.move_to_end(text)
        return Kept(text, self._texts[text], common[text])
