"""From what a request says to what the engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spec_cpu.arguments import check_stops
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.serve.engine.request import Request
from spec_cpu.serve.http.errors import refused
from spec_cpu.serve.http.prompts import Prompt, text_of
from spec_cpu.serve.http.schema import Format, Prediction, Sampling
from spec_cpu.serve.http.service import Service

_COLDEST = 1e-4  # a temperature below is 0: clients say so where they mean the likeliest token
_UNLIMITED = -1


def requests(
    service: Service,
    given: Sampling,
    prompt: Prompt,
    *,
    n: int = 1,
    max_tokens: int | None,
    stop: Sequence[str] | None,
    prediction: Prediction | None = None,
    logprobs: int | None = None,
    alternatives: bool = False,
) -> list[Request]:
    """`n` answers to one prompt. With a seed each has one of its own, which follows from it.

    Raises:
        ApiError: a parameter out of range, or a prompt that is too long.
        UsageError: likewise.
    """
    settings = service.settings
    if settings.max_prompt is not None and len(prompt.tokens) > settings.max_prompt:
        raise refused(
            f"the prompt has {len(prompt.tokens):,} tokens: this server takes "
            f"{settings.max_prompt:,} at most",
            code="context_length_exceeded",
        )
    vocab = service.engine.model.vocab
    sampling = _sampling(service, given)
    sampling.check_tokens(vocab.n, settings.name)
    references = []
    if prediction is not None:
        text = text_of(prediction.content, "prediction")
        references = [vocab.tokenize(text, add_special=False, parse_special=False)]
    seed = settings.seed if given.seed is None else None if given.seed == -1 else given.seed
    if seed is not None and seed < 0:
        raise refused("'seed' is 0 or more, or -1 for a new one", "seed")
    one = Request(
        tokens=prompt.tokens,
        stops=[*check_stops(stop), *prompt.stops],
        max_tokens=_limit(max_tokens, settings.max_tokens),
        sampling=sampling,
        rule=settings.rule,
        ignore_eos=bool(given.ignore_eos),
        references=references,
        logprobs=logprobs,
        alternatives=alternatives,
    )
    return [replace(one, seed=None if seed is None else seed + i) for i in range(n)]


def _sampling(service: Service, given: Sampling) -> SamplingParams:
    """The server's own, but for what the request says."""
    changed = given.model_dump(
        include={
            *("temperature", "top_p", "top_k", "min_p", "repeat_penalty"),
            *("frequency_penalty", "presence_penalty"),
        },
        exclude_none=True,
    )
    temperature = changed.get("temperature", 1.0)
    # No mass at all is left to the likeliest token, as at temperature 0.
    if 0 < temperature < _COLDEST or changed.get("top_p") == 0:
        changed["temperature"] = 0.0
    if changed.get("top_p") == 0:
        del changed["top_p"]
    if given.repeat_last_n is not None:
        changed["penalty_last_n"] = given.repeat_last_n
    if given.logit_bias:
        changed["logit_bias"] = _biases(given.logit_bias)
    return replace(service.settings.sampling, **changed)


def _biases(given: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError:
        raise refused("'logit_bias' names tokens by their numbers", "logit_bias") from None


def _limit(asked: int | None, most: int | None) -> int | None:
    if asked is not None and asked != _UNLIMITED and asked < 1:
        raise refused(f"'max_tokens' is 1 or more, not {asked}", "max_tokens")
    limits = [one for one in (asked, most) if one is not None and one != _UNLIMITED]
    return min(limits, default=None)


def check_format(given: Format | None, param: str) -> None:
    """Raise ApiError where an answer is to be constrained."""
    if given is not None and given.type != "text":
        raise refused(
            f"'{param}' of type {given.type!r} is not offered yet: ask for the form in the prompt",
            param,
        )
