"""/v1/completions: texts that go on, outside any conversation."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spec_cpu.llama.vocab import Detokenizer, Vocab
from spec_cpu.serve.engine.request import Ended
from spec_cpu.serve.engine.request import Request as EngineRequest
from spec_cpu.serve.http import asked, logprobs
from spec_cpu.serve.http.answers import Answers
from spec_cpu.serve.http.choice import Choice, complete, steps, usage
from spec_cpu.serve.http.errors import refused
from spec_cpu.serve.http.prompts import Prompt, read_texts
from spec_cpu.serve.http.schema import CompletionRequest
from spec_cpu.serve.http.service import Service, service_of
from spec_cpu.serve.http.shown import ShownToken
from spec_cpu.serve.http.streaming import DONE, WAITING, EventStream, event, read, whole


async def post(request: Request) -> Response:
    """Go on with each of the prompts."""
    service = service_of(request)
    given = await read(request, service, CompletionRequest)
    requests = await anyio.to_thread.run_sync(_prepare, service, given)
    answers = Answers(service, requests)
    completion = _Completion(service, given, requests)
    if given.stream:
        return EventStream(completion.stream(answers), answers)
    return await whole(request, answers, lambda: completion.collect(answers))


def _prepare(service: Service, given: CompletionRequest) -> list[EngineRequest]:
    """`n` requests for each prompt."""
    asked.check_format(given.response_format, "response_format")
    n = given.n or 1
    if given.best_of not in (None, n):
        raise refused("'best_of' is not offered: leave it out, or give as many as 'n'", "best_of")
    if given.suffix:
        raise refused(
            "'suffix' is not offered: write the model's own marks for a gap into the prompt",
            "suffix",
        )
    if given.echo and given.logprobs is not None:
        raise refused("'echo' has no 'logprobs' here: leave out one of them", "echo")
    return [
        one
        for tokens in read_texts(
            service.engine.model.vocab, given.prompt, "prompt", may_be_empty=True
        )
        for one in asked.requests(
            service,
            given,
            Prompt("", tokens),
            n=n,
            max_tokens=given.max_tokens,
            stop=given.stop,
            logprobs=given.logprobs,
        )
    ]


class _Completion:
    """The answer to one request, in the forms of completions."""

    def __init__(
        self, service: Service, given: CompletionRequest, requests: Sequence[EngineRequest]
    ) -> None:
        self._vocab = service.engine.model.vocab
        self._logprobs = given.logprobs is not None
        self._n = given.n or 1
        options = given.stream_options
        self._usage = options is not None and bool(options.include_usage)
        self._choices = [Choice(self._vocab, raw=True) for _ in requests]
        self._echoes = [_text(self._vocab, one.tokens) if given.echo else "" for one in requests]
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.settings.name,
        }

    async def collect(self, answers: Answers) -> Response:
        """All of it at once."""
        await complete(answers, self._choices)
        choices = [
            self._choice(i, self._echoes[i] + one.said, one.tokens, 0, one.finish_reason)
            for i, one in enumerate(self._choices)
        ]
        return JSONResponse({**self._head, "choices": choices, "usage": self._usage_of_all()})

    async def stream(self, answers: Answers) -> AsyncIterator[str]:
        """A chunk for each step that shows something."""
        for i, echo in enumerate(self._echoes):
            if echo:
                yield self._chunk(self._choice(i, echo, (), 0))
        shown = [0] * len(self._choices)  # characters of each
        async for added in steps(answers, self._choices):
            if added is None:
                yield WAITING
                continue
            i, what, step = added
            if step is None:
                continue
            choice, before = self._choices[i], shown[i]
            said, ended = choice.said[before:], isinstance(what, Ended)
            if said or ended or (self._logprobs and step.texts):
                reason = choice.finish_reason if ended else None
                yield self._chunk(self._choice(i, said, step.texts, before, reason))
                shown[i] = len(choice.said)
        if self._usage:
            yield event({**self._head, "choices": [], "usage": self._usage_of_all()})
        yield DONE

    def _choice(
        self,
        index: int,
        text: str,
        tokens: Sequence[ShownToken],
        offset: int,
        finish: str | None = None,
    ) -> dict[str, Any]:
        probs = logprobs.completion(self._vocab, tokens, offset) if self._logprobs else None
        return {"index": index, "text": text, "logprobs": probs, "finish_reason": finish}

    def _chunk(self, choice: dict[str, Any]) -> str:
        chunk = {**self._head, "choices": [choice]}
        return event({**chunk, "usage": None} if self._usage else chunk)

    def _usage_of_all(self) -> dict[str, Any]:
        """Over the prompts."""
        starts = range(0, len(self._choices), self._n)
        return _added([usage(self._choices[i : i + self._n]) for i in starts])


def _added(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of counts that are built alike."""
    return {
        name: _added([one[name] for one in counts])
        if isinstance(value, dict)
        else sum(one[name] for one in counts)
        for name, value in counts[0].items()
    }


def _text(vocab: Vocab, tokens: Sequence[int]) -> str:
    detokenizer = Detokenizer(vocab)
    return "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
