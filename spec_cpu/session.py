"""A conversation with a target model and its drafter: a prompt in, steps out."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from types import TracebackType
from typing import Literal

import numpy as np

from spec_cpu import cost, defaults
from spec_cpu.acceptance import Calibration, Probability
from spec_cpu.cost import Costs
from spec_cpu.cost_cache import known_or_measured
from spec_cpu.decode import Cycle, cycles
from spec_cpu.draft.base import Drafter, Shape
from spec_cpu.errors import ContextError, LogitsError, ModelError, UsageError
from spec_cpu.llama.chat import Message
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence, PrefillProgress
from spec_cpu.rendering import Rendered, render
from spec_cpu.sampling import Pipeline, SamplingParams
from spec_cpu.schedule import Pinned, Schedule, Scheduler
from spec_cpu.stats import Stats
from spec_cpu.text import Origin, Piece, TextStream
from spec_cpu.verify import RULES
from spec_cpu.weigh import Weigher

_NEUTRAL = "The quick brown fox jumps over the lazy dog. "  # to measure a pass on

Finish = Literal["stop", "length", "context", "interrupted"]
Progress = Callable[[str, int, int | None], None]
"""Told (what is being done, how much is done, out of how much)."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one cycle added to the answer.

    Attributes:
        pieces: text that may be shown, each with its origin. It can lag behind the tokens: behind
            an unfinished character, or behind what could become a stop string.
        tokens: the ids, cut after one that ends the answer.
        cycle: acceptance and cost.
        finish: why the answer ends here; None while it goes on.
    """

    pieces: list[Piece]
    tokens: list[int]
    cycle: Cycle
    finish: Finish | None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Session:
    """A conversation. Make one with `load`; use it as a context manager, or call `close`.

    Attributes:
        messages: the turns so far; may be changed between answers.
        stats: of the latest answer. `total`: of all answers.
        finish: how the latest answer ended.
        notices: what a person should know, each once.
        costs: what passes cost here; None until something needed to know.
        held_back: the end of an answer that was broken off, where it was held back as the possible
            beginning of a stop string or of a character.
    """

    def __init__(
        self,
        target: Model,
        context: Context,
        drafter: Drafter | None,
        *,
        k: int | None,
        rule: str,
        sampling: SamplingParams,
        seed: int | None,
        system: str | None = None,
        notices: Sequence[str] = (),
        load_seconds: float = 0.0,
        recalibrate: bool = False,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.k = k if drafter else 0
        self._schedule: Schedule | None = None if self.k is None else Pinned(self.k)
        self.rule = rule
        self._repeatable = seed is not None
        self.seed = secrets.randbits(32) if seed is None else seed
        self.notices = list(notices)
        self.stats = self.total = Stats()
        self.finish: Finish = "interrupted"
        self.held_back = ""
        self.load_seconds = load_seconds
        self.costs: Costs | None = None
        self._recalibrate = recalibrate
        self._opening = [Message(role="system", content=system)] if system else []
        self.reset()
        self._answers = 0
        self._closed = False
        self._context = context
        self._sampling = sampling
        self._rng = np.random.default_rng(self.seed)
        self._sequence = KVSequence(context, branches=range(1, context.n_seq))
        self._plain_step: float | None = None
        self._timed_to = 0  # tokens of context up to which it holds

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._context.n_ctx

    @property
    def threads(self) -> int:
        """Threads that passes run on."""
        return self._context.threads

    @property
    def kernels(self) -> str:
        """What multiplies the target's weights: `stock`, or the name of a build of our kernels."""
        return self.target.kernels

    def close(self) -> None:
        """Free models and caches. A second call does nothing."""
        self._closed = True
        self._answers += 1  # an answer that is under way must not go on
        if self.drafter:
            self.drafter.close()
        self._context.close()
        self.target.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def reset(self) -> None:
        """Begin a new conversation. The cache stays: the new one may begin alike."""
        self.messages: list[Message] = list(self._opening)
        self.total = Stats()

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = defaults.MAX_TOKENS,
        raw: bool = False,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        k: int | None = None,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> Generator[Step, None, None]:
        """Answer `prompt`, the next turn of the conversation, a step at a time.

        Closing the generator ends the answer (`finish` is then `interrupted`); what was said stays
        in the conversation.

        Args:
            prompt: the user's turn; with `raw` the text to go on with, outside any conversation.
            max_tokens: at most so many tokens.
            raw: no chat template.
            stop: strings that end the answer; they are not part of it.
            ignore_eos: forbid the tokens that end an answer.
            k: pin k for this answer; 0 decodes plainly. Default: as the session was loaded.
            seed: draw this answer from a generator of its own.
            progress: told how far the evaluation of the prompt is.

        Raises:
            UsageError: an empty prompt, no tokens asked for, or a k out of range.
            ContextError: the prompt does not fit.
        """
        if self._closed:
            raise UsageError("this session was closed: load a new one")
        if max_tokens < 1:
            raise UsageError(f"max-tokens must be at least 1, not {max_tokens}")
        self._check_pinned(k)
        self._answers += 1
        this = self._answers
        rendered = self.render(prompt, raw=raw)
        tokens, drafter = rendered.tokens, self._drafter_for(k)
        self.finish = "interrupted"
        self.stats = Stats()
        self.held_back = ""
        answer: list[str] = []
        stream: TextStream | None = None
        try:
            self._prefill(tokens, drafter, progress)
            schedule = self._scheduled(tokens[-1], progress) if k is None else Pinned(k)
            rng = self._rng if seed is None else np.random.default_rng(seed)
            stream = TextStream(self.target.vocab, [*rendered.stops, *stop])
            for step in self._steps(drafter, tokens, max_tokens, stream, ignore_eos, schedule, rng):
                answer.append(step.text)
                yield step
                if this != self._answers:
                    raise UsageError("this answer was broken off: the session went on without it")
        except LogitsError as error:
            raise ModelError(f"{self.target.path.name}: {error}") from None
        finally:
            if this == self._answers:
                self._keep(None if raw else prompt, answer, stream)

    def _drafter_for(self, k: int | None) -> Drafter | None:
        """None where it will never be asked: then it need not read the prompt either."""
        never = k == 0 or (k is None and self._schedule is not None and self._schedule.hopeless)
        return None if never else self.drafter

    def _check_pinned(self, k: int | None) -> None:
        if k is None:
            return
        if not 0 <= k <= defaults.MAX_DRAFT_TOKENS:
            raise UsageError(f"draft-tokens must be from 0 to {defaults.MAX_DRAFT_TOKENS}, not {k}")
        if k and not self.drafter:
            raise UsageError(f"there is no draft to pin k = {k} for: load one, with k not 0")

    def _keep(self, prompt: str | None, answer: list[str], stream: TextStream | None) -> None:
        """Book an answer that came to its end or was broken off; `prompt` None: no conversation."""
        if stream is not None:
            self.held_back = "".join(piece.text for piece in stream.finish("plain"))
        text = "".join(answer) + self.held_back
        if prompt is not None and text:
            self.messages.append(Message(role="user", content=prompt))
            self.messages.append(Message(role="assistant", content=text))

    def _steps(
        self,
        drafter: Drafter | None,
        prompt: list[int],
        max_tokens: int,
        stream: TextStream,
        ignore_eos: bool,
        schedule: Schedule,
        rng: np.random.Generator,
    ) -> Iterator[Step]:
        produced = 0
        for cycle in cycles(
            self._sequence,
            drafter,
            prompt,
            schedule=schedule,
            pipeline=Pipeline(self._sampling_for(ignore_eos)),
            rule=RULES[self.rule],
            rng=rng,
            max_tokens=max_tokens,
        ):
            pieces: list[Piece] = []
            tokens: list[int] = []
            ended = False
            for token, origin in zip(cycle.tokens, _origins(cycle), strict=True):
                tokens.append(token)
                pieces += stream.push(token, origin)
                ended = token in self.target.vocab.end_tokens or stream.stopped
                if ended:
                    break
            produced += len(tokens)
            finish = self._finish(ended, produced >= max_tokens, len(prompt) + produced)
            if finish:
                self.finish = finish
                pieces += stream.finish(origin)
            for stats in (self.stats, self.total):
                stats.add(cycle, len(tokens))
            yield Step(pieces, tokens, cycle, finish)
            if finish:
                return

    def _finish(self, ended: bool, enough: bool, length: int) -> Finish | None:
        if ended:
            return "stop"
        if enough:
            return "length"
        return "context" if length >= self.n_ctx else None

    def _sampling_for(self, ignore_eos: bool) -> SamplingParams:
        if not ignore_eos:
            return self._sampling
        forbidden = dict.fromkeys(self.target.vocab.end_tokens, -np.inf)
        return replace(self._sampling, logit_bias={**self._sampling.logit_bias, **forbidden})

    def render(self, prompt: str, *, raw: bool = False) -> Rendered:
        """`prompt`, the next turn of the conversation, as the target reads it.

        Raises:
            UsageError: an empty prompt.
            ContextError: it does not fit.
        """
        rendered = render(self.target, None if raw else self.messages, prompt)
        self._notify(rendered.notice)
        if len(rendered.tokens) >= self.n_ctx:
            raise ContextError(
                f"the prompt has {len(rendered.tokens):,} tokens, but the context holds "
                f"{self.n_ctx:,} with the answer: shorten it, or raise --ctx"
            )
        return rendered

    def _notify(self, notice: str | None) -> None:
        if notice and notice not in self.notices:
            self.notices.append(notice)

    def _prefill(
        self, tokens: list[int], drafter: Drafter | None, progress: Progress | None
    ) -> None:
        """Bring the caches to the prompt without its last token, and time a plain step there.

        The draft's is left alone, and nothing timed, where it is not to draft.
        """
        start = perf_counter()
        features, known = self._read(tokens, drafter, _labelled(progress, "reading the prompt"))
        if drafter:
            told = _labelled(progress, "reading the prompt (draft)")
            drafter.begin(tokens, told, features=features)
        read = perf_counter()
        if drafter and len(tokens) > self._timed_to:
            self._plain_step = cost.plain_step(self._sequence, tokens[-1])
            self._timed_to = 2 * len(tokens) + 256  # a plain step slows as the text grows
        done = perf_counter()
        for stats in (self.stats, self.total):
            stats.prompt_tokens += len(tokens)
            stats.reused_tokens += known
            stats.prefill += read - start
            stats.calibrate += done - read
            stats.plain_step = self._plain_step

    def _read(
        self, tokens: list[int], drafter: Drafter | None, progress: PrefillProgress | None = None
    ) -> tuple[Rows | None, int]:
        """Bring the target's cache to the prompt without its last token.

        Returns:
            The features that `drafter` wants, and how many tokens were in the cache.
        """
        known = self._sequence.reuse(tokens[:-1])
        if drafter is None or not drafter.feature_rows:
            self._sequence.prefill(tokens[known:-1], progress)
            return None, known
        # One more is evaluated: what follows it is new, and the draft learns what from its feature.
        known = self._sequence.reuse(tokens[: max(0, known - 1)])
        rows = self._sequence.prefill_hidden(tokens[known:-1], drafter.feature_rows, progress)
        return rows, known

    def _scheduled(self, last: int, progress: Progress | None) -> Schedule:
        """The session's own schedule; the first time its costs are looked up or measured."""
        if self._schedule is None:
            start = perf_counter()
            k_max = self.most_drafted
            costs = self._costs(k_max + 1, last, progress)
            self._schedule = self._schedule_for(self.drafter, costs, k_max)
            for stats in (self.stats, self.total):
                stats.calibrate += perf_counter() - start
        return self._schedule

    def _schedule_for(self, drafter: Drafter | None, costs: Costs, k_max: int) -> Schedule:
        if drafter is None or drafter.shape == "chain":
            return Scheduler(costs, k_max=k_max, repeatable=self._repeatable)
        calibration = Calibration() if drafter.free else Probability()
        return Weigher(costs, k_max=k_max, repeatable=self._repeatable, calibration=calibration)

    @property
    def shape(self) -> Shape | None:
        """What is drafted: chains or trees; None without a drafter."""
        return self.drafter.shape if self.drafter else None

    @property
    def exact(self) -> bool:
        """Is the text distributed as the target's own? At temperature 0 every rule sees to that."""
        return RULES[self.rule].exact or self._sampling.greedy

    @property
    def most_drafted(self) -> int:
        """The most tokens that are drafted a cycle where k is chosen."""
        tree = self.shape == "tree"
        return defaults.MAX_TREE_NODES if tree else defaults.MAX_AUTO_DRAFT_TOKENS

    @property
    def why_plain(self) -> str | None:
        """Why nothing is drafted just now, in a person's words; None while drafting."""
        return self._schedule.reason if self._schedule and self.drafter else None

    def calibrate(
        self,
        max_width: int,
        *,
        depth: int = defaults.PLAN_DEPTH,
        progress: Progress | None = None,
    ) -> Costs:
        """What passes of up to `max_width` tokens cost here, `depth` tokens into a text.

        Args:
            progress: told of the time spent measuring.

        Raises:
            ContextError: `depth` and `max_width` do not fit.
        """
        if depth + max_width >= self.n_ctx:
            raise ContextError(
                f"a depth of {depth:,} and passes of {max_width} tokens need more than the context "
                f"of {self.n_ctx:,}: give a smaller --depth, or raise --ctx"
            )
        sentence = self.target.vocab.tokenize(_NEUTRAL)
        tokens = (sentence * (depth // len(sentence) + 1))[: depth + 1]
        features, _ = self._read(tokens, self.drafter)
        if self.drafter:
            self.drafter.begin(tokens, features=features)
        return self._costs(max_width, tokens[-1], progress)

    def _costs(self, max_width: int, token: int, progress: Progress | None) -> Costs:
        """Costs known to the session or the disk, or measured where both sequences end now."""
        if self.costs and len(self.costs.passes) >= max_width:
            return self.costs
        costs, notice = known_or_measured(
            self._sequence,
            token,
            max_width=max_width,
            pipeline=Pipeline(self._sampling),
            draft=self.drafter.sequence if self.drafter else None,
            anew=self._recalibrate,
            progress=_seconds(progress, "measuring this machine"),
        )
        self._notify(notice)
        window = self.drafter.window if self.drafter else None
        self.costs = replace(costs, draft_window=window)
        return self.costs


def _origins(cycle: Cycle) -> list[Origin]:
    if not cycle.drafted:
        return ["plain"]
    last: Origin = "bonus" if cycle.accepted == cycle.tried else "correction"
    accepted: list[Origin] = ["accepted"] * cycle.accepted
    return [*accepted, last]


def _seconds(progress: Progress | None, label: str) -> cost.MeasureProgress | None:
    if progress is None:
        return None
    return lambda spent, budget: progress(label, round(1000 * spent), round(1000 * budget))


def _labelled(progress: Progress | None, label: str) -> PrefillProgress | None:
    if progress is None:
        return None
    return lambda done, total: progress(label, done, total)
