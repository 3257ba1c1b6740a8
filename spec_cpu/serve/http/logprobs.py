"""Log probabilities of tokens, in the forms of OpenAI's APIs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spec_cpu.llama.vocab import Vocab
from spec_cpu.serve.http.shown import ShownToken, piece_or_name

_NEVER = -9999.0  # what OpenAI writes for a probability of 0


def chat(vocab: Vocab, tokens: Sequence[ShownToken]) -> list[dict[str, Any]]:
    """For chat completions and responses: an object a token."""
    found = []
    for one in tokens:
        if (probs := one.token.logprobs) is not None:
            top = [_named(vocab, other, value) for other, value in probs.top]
            found.append({**_named(vocab, one.token.id, probs.own), "top_logprobs": top})
    return found


def _named(vocab: Vocab, token: int, value: float) -> dict[str, Any]:
    return {
        "token": piece_or_name(vocab, token),
        "logprob": _finite(value),
        "bytes": list(vocab.piece(token)),
    }


def completion(vocab: Vocab, tokens: Sequence[ShownToken], offset: int) -> dict[str, Any]:
    """For completions: lists beside each other.

    Args:
        offset: characters of the answer before these tokens.
    """
    found: dict[str, Any] = {
        name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    for one in tokens:
        if (probs := one.token.logprobs) is not None:
            found["tokens"].append(piece_or_name(vocab, one.token.id))
            found["token_logprobs"].append(_finite(probs.own))
            top = {piece_or_name(vocab, other): _finite(value) for other, value in probs.top}
            found["top_logprobs"].append(top)
            found["text_offset"].append(offset)
        offset += len(one.text)
    return found


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _NEVER
