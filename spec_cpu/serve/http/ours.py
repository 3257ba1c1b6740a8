"""What OpenAI's answers have no place for: where each token came from, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_cpu.llama.vocab import Vocab
from spec_cpu.serve.engine.request import Delta, Ended, Reading
from spec_cpu.serve.http.shown import ShownToken, alternatives


def of_reading(number: int, reading: Reading) -> dict[str, Any]:
    """The prompt of the engine's answer `number` is being read."""
    return {**_step(number, [], 0, 0), "reading": {"done": reading.done, "total": reading.total}}


def of_delta(
    vocab: Vocab, number: int, delta: Delta, tokens: Sequence[ShownToken]
) -> dict[str, Any]:
    """A step, and the tokens whose text is complete with it."""
    told = [_token(vocab, one) for one in tokens]
    return _step(number, told, delta.drafted, delta.accepted)


def of_end(vocab: Vocab, number: int, ended: Ended, tokens: Sequence[ShownToken]) -> dict[str, Any]:
    """The last tokens, and what the whole answer took."""
    told = [_token(vocab, one) for one in tokens]
    return {**_step(number, told, 0, 0), "summary": _summary(ended)}


def _step(
    number: int, tokens: Sequence[dict[str, Any]], drafted: int, accepted: int
) -> dict[str, Any]:
    return {"id": number, "tokens": tokens, "drafted": drafted, "accepted": accepted}


def _token(vocab: Vocab, shown: ShownToken) -> dict[str, Any]:
    return {
        "id": shown.token.id,
        "text": shown.text,
        "origin": shown.token.origin,
        "sources": list(shown.token.sources),
        "alternatives": list(alternatives(vocab, shown.token)),
    }


def _summary(ended: Ended) -> dict[str, Any]:
    stats = ended.stats
    return {
        "tokens": stats.tokens,
        "seconds": stats.decode,
        "prefill_seconds": stats.prefill,
        "tokens_per_second": stats.tokens_per_second,
        "plain_tokens_per_second": stats.plain_tokens_per_second,
        "speedup": stats.speedup,
        "tokens_per_step": stats.tokens_per_cycle,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "by_source": {
            name: {"drafted": one.drafted, "accepted": one.accepted, "tried": one.tried}
            for name, one in stats.by_source.items()
        },
        "prompt_tokens": ended.prompt_tokens,
        "reused_tokens": ended.reused_tokens,
        "seed": ended.seed,
        "finish": ended.finish,
    }
