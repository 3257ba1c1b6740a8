"""A conversation with a target model and its sources: a prompt in, steps out."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from spec_cpu import defaults
from spec_cpu.answer.asked import Asked
from spec_cpu.answer.ending import Ending
from spec_cpu.answer.generation import Generation
from spec_cpu.answer.stats import Stats
from spec_cpu.answer.steps import Finish, Step
from spec_cpu.answer.transcript import Transcript, cut_answer
from spec_cpu.arguments import FLAG, FUNCTION, TEXT, WHOLE, check_stops, with_arguments_of
from spec_cpu.costs.acceptance import Acceptance
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.verify import RULES
from spec_cpu.draft.base import Shape, Source
from spec_cpu.draft.memory import Memory
from spec_cpu.errors import ContextError, LogitsError, ModelError, UsageError
from spec_cpu.llama.chat import Message
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.progress import Progress
from spec_cpu.prompt_cache import PromptCache
from spec_cpu.sampling.logits import RowOps
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.text.rendering import Rendered, render
from spec_cpu.turns import Turns


class Session:
    """A conversation. Make one with `load`; use it as a context manager, or call `close`.

    Threads: any thread may call `close` at any time. One thread at a time may use the models, by
    `generate` and the steps of its answer, `render` or `calibrate`. An answer under way belongs to
    the thread that took its last step: other threads get a `BusyError`, except that they may take
    its next steps. In its own thread `generate` and `calibrate` break the answer off. Attributes
    that need no model can be read from any thread; change `messages`, or call `reset`, between
    answers only. Sessions do not share anything. Do not close `target` or the sources yourself.

    Attributes:
        sources: propose the tokens of a tree each cycle; at most one of them takes passes.
        messages: the turns so far, with what was said of the answer under way; may be changed
            between answers.
        stats: of the latest answer. `total`: of all answers.
        finish: how the latest answer ended. `seed`: of its draws. `exact`: is its text distributed
            as the target's own?
        notices: what a person should know, each once.
        held_back: the end of an answer that was broken off, where it was held back as the possible
            beginning of a stop string or of a character.
    """

    def __init__(
        self,
        target: Model,
        context: Context,
        sources: Sequence[Source],
        *,
        k: int | None,
        rule: str,
        sampling: SamplingParams,
        row_ops: RowOps,
        seed: int | None,
        system: str | None = None,
        notices: Sequence[str] = (),
        load_seconds: float = 0.0,
        recalibrate: bool = False,
        memory: Memory | None = None,
        prompt_cache: PromptCache | None = None,
    ) -> None:
        self.target = target
        self.sources = list(sources)
        self.k = k if sources else 0
        self.rule = rule
        self.seed = seed
        self.exact = RULES[rule].exact or sampling.greedy
        self.notices = list(notices)
        self.stats = self.total = Stats()
        self.finish: Finish = "interrupted"
        self.held_back = ""
        self.load_seconds = load_seconds
        self._opening = [Message(role="system", content=system)] if system else []
        self.reset()
        self._turns = Turns(self._free)
        self._open: Transcript | None = None
        self._latest: Transcript | None = None
        self._context = context
        self._memory = memory
        self._unsaved: Memory | None = None  # once there is something to save
        self._sampling = sampling
        self._seed = seed
        self._generation = Generation(
            context,
            self.sources,
            row_ops,
            sampling=sampling,
            prompt_cache=prompt_cache,
            k=self.k,
            recalibrate=recalibrate,
            notify=self._notify,
        )

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

    @property
    def closed(self) -> bool:
        """Was it closed? It can do nothing more then."""
        return self._turns.closed

    def close(self) -> None:
        """Free models and caches, once the step that is under way is done; write the memory.

        An answer that is under way ends: asked for its next step it raises `UsageError`. A second
        call does nothing.
        """
        self._turns.close()

    def _free(self) -> None:
        unsaved, self._unsaved = self._unsaved, None
        try:
            if unsaved is not None:
                self._notify(unsaved.save(self.sources))
        finally:
            for source in self.sources:
                source.close()
            self._context.close()
            self.target.close()

    def __repr__(self) -> str:
        """The models, and how full the context is."""
        target = self.target.path.name
        drafts = " and ".join(source.name for source in self.sources) or "nothing"
        state = (
            "closed"
            if self.closed
            else f"{len(self._generation):,} of {self.n_ctx:,} tokens of context used"
        )
        return f"<Session: {target}, drafting from {drafts}; {state}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def reset(self) -> None:
        """Begin a new conversation. The cache stays: the new one may begin alike."""
        self.messages: list[Message] = list(self._opening)
        self.total = Stats()

    def generate(
        self,
        prompt: str | None,
        *,
        max_tokens: int = defaults.MAX_TOKENS,
        raw: bool = False,
        special: bool = True,
        stop: str | Iterable[str] | None = (),
        ignore_eos: bool = False,
        sampling: SamplingParams | None = None,
        rule: str | None = None,
        k: int | None = None,
        seed: int | None = None,
        repeatable: bool = True,
        progress: Progress | None = None,
    ) -> Generator[Step, None, None]:
        """Answer `prompt`, the next turn of the conversation, a step at a time.

        The call checks all that it is given, breaks off an answer that is under way, and takes the
        conversation as it stands; the first step reads the prompt. Closing the generator ends the
        answer (`finish` is then `interrupted`); what was said stays in the conversation.

        Args:
            prompt: the user's turn; with `raw` the text to go on with, outside any conversation.
                None: go on with the conversation's last answer, where it was cut. Greedily it
                becomes what it would have been.
            max_tokens: the most tokens that the answer may have.
            raw: no chat template.
            special: with `raw`: names of control tokens in the text are those tokens. In a
                conversation they are text, and only the template's own marks are control tokens.
            stop: strings (or one) that end the answer; they are not part of it. They may spell
                control tokens (`<|im_start|>`), which have no text otherwise.
            ignore_eos: forbid the tokens that end an answer, but for those that `stop` spells.
            sampling, rule: for this answer. Default: as the session was loaded.
            k: pin k for this answer; 0 decodes plainly. Default: as the session was loaded.
            seed: of this answer's random draws. Default: the one that the session was loaded with,
                else a new one; `Session.seed` tells which.
            repeatable: with a seed, what was asked before and the machine's pace have no say in
                what is drafted, so that the same seed gives the same answer. False: the seed fixes
                the draws alone, and drafts are those that pay best now.

        Raises:
            UsageError: an empty prompt, an argument of a wrong type or out of range, no answer to
                go on with, or a session that was closed.
            BusyError: another thread has an answer under way.
            ContextError: the prompt does not fit.
        """
        asked = Asked(
            prompt=prompt,
            max_tokens=max_tokens,
            raw=raw,
            special=special,
            stops=check_stops(stop),
            ignore_eos=ignore_eos,
            sampling=self._sampling if sampling is None else sampling,
            rule=self.rule if rule is None else rule,
            k=k,
            seed=self._seed if seed is None else seed,
            repeatable=repeatable,
            progress=progress,
        )
        if k and not self.sources:
            raise UsageError(f"there is no draft to pin k = {k} for: load one, with k not 0")
        asked.sampling.check_tokens(self.target.vocab.n, self.target.path.name)
        steps = self._steps(asked)
        next(steps)  # the answer begins: its end is booked from here on, even if no step is taken
        return steps

    @with_arguments_of(generate)
    def answer(self, *args: Any, **named: Any) -> str:
        """The whole answer to `prompt`. Arguments and errors: as for `generate`."""
        return "".join(step.text for step in self.generate(*args, **named))

    def _steps(self, asked: Asked) -> Generator[Any, None, None]:
        """Yields None once the answer has begun, then its steps."""
        generation, this = self._generation, self._turns.begin()
        self._settle()
        try:
            with self._turns.use(this):
                tokens, ending, answer = self._begin(asked)
            yield None
            with self._turns.use(this):
                counted = (self.stats, self.total)
                progress = self._turns.while_open(asked.progress)
                sources = generation.participants.useful(asked.k)
                generation.read(tokens, sources, counted, progress)
                self._unsaved = self._memory
                coming = generation.steps(
                    asked, tokens, sources, ending, answer.stream, self.seed, counted, progress
                )
                self._open = answer
            while True:
                with self._turns.use(this):
                    step = next(coming, None)
                    if step is None:
                        return
                    self._count(step)
                    answer.take(step.tokens, step.text)
                yield step
        except LogitsError as error:
            raise ModelError(f"{self.target.path.name}: {error}") from None
        finally:
            with self._turns.ended(this) as latest:
                if latest:
                    if asked.k is None and self._open is not None:  # the policy chose, and it began
                        generation.participants.remember(self.stats)
                    self._settle()

    def _begin(self, asked: Asked) -> tuple[list[int], Ending, Transcript]:
        """Begin an answer: the tokens to go on from, what will end it, and where it is written."""
        messages = None if asked.raw else self.messages
        before: Sequence[Message] | None = messages
        cut, prompt = None, asked.prompt
        if prompt is None:
            cut = cut_answer(self.messages, self._latest)
            before, prompt = cut.before, cut.prompt
        rendered = self._rendered(before, prompt, special=asked.special)
        stops = [*rendered.stops, *asked.stops]
        ending = Ending(self.target.vocab, stops, ignore_eos=asked.ignore_eos)
        tokens = rendered.tokens
        if cut is not None:
            tokens = [*tokens, *cut.read(self.target.vocab, ending.tokens)]
            self._check_room(tokens)
        answer = Transcript(messages, prompt, ending.stream(), cut)
        for notice in ending.out_of_reach(asked.sampling):
            self._notify(notice)
        self.finish, self.stats, self.held_back = "interrupted", Stats(), ""
        self.seed = secrets.randbits(32) if asked.seed is None else asked.seed
        self.exact = asked.exact
        self._generation.choose(asked.sampling, repeatable=asked.repeats)
        return tokens, ending, answer

    def _count(self, step: Step) -> None:
        self.finish = step.finish or self.finish
        for stats in (self.stats, self.total):
            stats.add(step.cycle, len(step.tokens))

    def _settle(self) -> None:
        """Close the answer under way, if there is one, and keep what it held back."""
        answer, self._open = self._open, None
        if answer is not None:
            self.held_back = answer.break_off()
            self._latest = answer

    def render(self, prompt: str, *, raw: bool = False, special: bool = True) -> Rendered:
        """`prompt`, the next turn of the conversation, as the target reads it.

        Args:
            raw, special: as for `generate`.

        Raises:
            UsageError: an empty prompt, or a session that was closed.
            BusyError: another thread has an answer under way.
            ContextError: it does not fit.
        """
        TEXT.check(prompt=prompt)
        FLAG.check(raw=raw, special=special)
        with self._turns.use():
            return self._rendered(None if raw else self.messages, prompt, special=special)

    def _rendered(
        self, before: Sequence[Message] | None, prompt: str, *, special: bool
    ) -> Rendered:
        rendered = render(self.target, before, prompt, special=special)
        self._notify(rendered.notice)
        self._check_room(rendered.tokens)
        return rendered

    def _check_room(self, tokens: Sequence[int]) -> None:
        if len(tokens) >= self.n_ctx:
            raise ContextError(
                f"the prompt has {len(tokens):,} tokens, but the context holds "
                f"{self.n_ctx:,} with the answer: shorten it, or raise `ctx`"
            )

    def _notify(self, notice: str | None) -> None:
        if notice and notice not in self.notices:
            self.notices.append(notice)

    @property
    def shape(self) -> Shape | None:
        """What is drafted: chains or trees, a model's if one drafts; None without a source."""
        shapes = [source.shape for source in self.sources if hasattr(source, "shape")]
        return shapes[0] if shapes else "tree" if self.sources else None

    @property
    def most_drafted(self) -> int:
        """The most tokens that are drafted a cycle where k is chosen."""
        return self._generation.participants.most_drafted

    @property
    def costs(self) -> Costs | None:
        """What passes cost here; None until something needed to know."""
        return self._generation.participants.costs

    @property
    def acceptance(self) -> Acceptance | None:
        """How often a drafted token is accepted, as far as that is known before an answer."""
        return self._generation.participants.acceptance

    @property
    def draft_model(self) -> Model | None:
        """The model that drafts, if one does."""
        models = (source.model for source in self.sources)
        return next((model for model in models if model is not None), None)

    @property
    def why_plain(self) -> str | None:
        """Why nothing is drafted just now, in a person's words; None while drafting."""
        return self._generation.participants.why_plain

    def calibrate(
        self,
        max_width: int,
        *,
        depth: int = defaults.PLAN_DEPTH,
        progress: Progress | None = None,
    ) -> Costs:
        """What passes of up to `max_width` tokens cost here, `depth` tokens into a text.

        An answer that is under way is broken off.

        Args:
            progress: told of the time spent measuring.

        Raises:
            ContextError: `depth` and `max_width` do not fit.
            UsageError: an argument of a wrong type or out of range, or the session was closed.
            BusyError: another thread has an answer under way.
        """
        WHOLE.check(max_width=max_width, depth=depth)
        FUNCTION.check(optional=True, progress=progress)
        if max_width < 1 or depth < 0:
            raise UsageError(f"a pass of {max_width} tokens at a depth of {depth} cannot be timed")
        if depth + max_width >= self.n_ctx:
            raise ContextError(
                f"a depth of {depth:,} and passes of {max_width} tokens need more than the context "
                f"of {self.n_ctx:,}: give a smaller `depth`, or raise `ctx`"
            )
        with self._turns.alone():
            self._settle()
            return self._generation.measured(
                max_width,
                depth,
                reading=self._turns.while_open(None),
                measuring=self._turns.while_open(progress),
            )
