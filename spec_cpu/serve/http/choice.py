"""One answer as it comes: its text, split into thoughts, what is said, and calls; its tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from spec_cpu.llama.vocab import Vocab
from spec_cpu.serve.engine.request import Delta, Ended
from spec_cpu.serve.engine.request import Event as EngineEvent
from spec_cpu.serve.http import calls, thoughts
from spec_cpu.serve.http.answers import Answers
from spec_cpu.serve.http.call_object import Began, Event, Said
from spec_cpu.serve.http.prompts import Choosable
from spec_cpu.serve.http.shown import ShownToken, ShownTokens

MARKS = (*thoughts.MARKS, *calls.MARKS)


@dataclass(slots=True)
class Thought:
    """A part of the thoughts."""

    text: str


@dataclass(slots=True)
class CallBegan:
    """The first part of the call number `index`."""

    index: int
    id: str
    name: str


@dataclass(slots=True)
class CallGoesOn:
    """The next part of its arguments."""

    index: int
    arguments: str


Shown: TypeAlias = Thought | Said | CallBegan | CallGoesOn


@dataclass(slots=True)
class Called:
    """A call of a function; `arguments` is JSON, as the model wrote it."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Step:
    """What is to be shown of a step, and the tokens that it completes.

    Attributes:
        texts: those of the tokens that do not end the answer.
    """

    shown: list[Shown]
    tokens: list[ShownToken]
    texts: list[ShownToken]


@dataclass(slots=True)
class Choice:
    """An answer, with what was said of it so far.

    Attributes:
        raw: all of it is said, as it is.
        thought, said: texts. `called`: the calls.
        tokens: of the text, that is without those that end it. `thinking_tokens`: of the thoughts.
        ended: once it is complete.
    """

    vocab: Vocab
    may_call: Choosable = field(default_factory=Choosable)
    form: calls.Format = "tags"
    raw: bool = False
    thinking: bool = False
    begun: str = ""
    thought: str = ""
    said: str = ""
    called: list[Called] = field(default_factory=list)
    tokens: list[ShownToken] = field(default_factory=list)
    thinking_tokens: int = 0
    ended: Ended | None = None
    _texts: ShownTokens = field(init=False)
    _thoughts: thoughts.Thoughts = field(init=False)
    _calls: calls.Calls | None = field(init=False)

    def __post_init__(self) -> None:
        self._texts = ShownTokens(self.vocab, () if self.raw else MARKS)
        self._thoughts = thoughts.Thoughts(thinking=self.thinking)
        named = self.may_call.names
        self._calls = calls.Calls(self.form, named) if named else None

    def push(self, delta: Delta) -> Step:
        """What a step of the engine added."""
        text, tokens = self._texts.push(delta)
        return self._step(self._split(self._take_opening() + text), tokens)

    def finish(self, ended: Ended) -> Step:
        """It is complete: what was held back."""
        self.ended = ended
        shown = self._split(self._take_opening())
        thought, said = self._thoughts.finish()
        if thought:
            shown.append(self._think(thought))
        shown += self._say(said)
        if self._calls is not None:
            shown += map(self._keep, self._calls.finish())
        return self._step(shown, self._texts.finish())

    @property
    def finish_reason(self) -> str:
        """As OpenAI names it. An answer that was cut, for whatever reason, has a length."""
        if self.ended is None or self.ended.finish != "stop":
            return "length"
        return "tool_calls" if self.called else "stop"

    def _take_opening(self) -> str:
        """What the answer begins with though the model did not write it."""
        opening, self.begun = self.begun, ""
        return opening

    def _split(self, text: str) -> list[Shown]:
        if self.raw or not text:
            return self._say(text)
        thought, said = self._thoughts.push(text)
        return [*([self._think(thought)] if thought else []), *self._say(said)]

    def _think(self, text: str) -> Thought:
        self.thought += text
        return Thought(text)

    def _say(self, text: str) -> list[Shown]:
        if not text:
            return []
        return list(
            map(self._keep, [Said(text)] if self._calls is None else self._calls.push(text))
        )

    def _keep(self, event: Event) -> Shown:
        index = len(self.called)
        if isinstance(event, Said):
            self.said += event.text
            return event
        if isinstance(event, Began):
            self.called.append(Called(calls.new_id(self.form), event.name))
            return CallBegan(index, self.called[-1].id, event.name)
        self.called[-1].arguments += event.text
        return CallGoesOn(index - 1, event.text)

    def _step(self, shown: list[Shown], tokens: list[ShownToken]) -> Step:
        if self._thoughts.thinking:
            self.thinking_tokens += len(tokens)
        texts = [one for one in tokens if one.token.id not in self.vocab.end_tokens]
        self.tokens += texts
        return Step(shown, tokens, texts)


def usage(choices: Sequence[Choice]) -> dict[str, Any]:
    """What answers to one prompt took, as OpenAI counts it.

    Tokens of a prediction are not told from others that were drafted.
    """
    ended = [choice.ended for choice in choices if choice.ended is not None]
    prompt = max((one.prompt_tokens for one in ended), default=0)
    tokens = sum(one.stats.tokens for one in ended)
    accepted = sum(one.stats.accepted for one in ended)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
        "prompt_tokens_details": {
            "cached_tokens": max((one.reused_tokens for one in ended), default=0)
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(choice.thinking_tokens for choice in choices),
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(one.stats.drafted for one in ended) - accepted,
        },
    }


async def steps(
    answers: Answers, choices: Sequence[Choice]
) -> AsyncIterator[tuple[int, EngineEvent, Step | None] | None]:
    """Each event with the number of its answer, and what it added to that one of `choices`.

    None, and errors: as `Answers.events`.
    """
    async for numbered in answers.events():
        if numbered is None:
            yield None
            continue
        i, what = numbered
        if isinstance(what, Delta):
            yield i, what, choices[i].push(what)
        elif isinstance(what, Ended):
            yield i, what, choices[i].finish(what)
        else:
            yield i, what, None


async def complete(answers: Answers, choices: Sequence[Choice]) -> None:
    """Wait until all of `choices` are whole. Errors: as `Answers.events`."""
    async for _ in steps(answers, choices):
        pass
