"""Reading a prompt: from its tokens to the caches of the target and of what drafts for it."""

from __future__ import annotations

from collections.abc import Sequence

from spec_cpu.draft.base import Source
from spec_cpu.llama.context import Rows
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.llama.vocab import Vocab
from spec_cpu.progress import PrefillProgress, Progress, of_tokens

_SENTENCE = "The quick brown fox jumps over the lazy dog. "


def read_prompt(
    target: KVSequence,
    tokens: list[int],
    sources: Sequence[Source],
    progress: Progress | None = None,
) -> int:
    """Bring the caches of `target` and of `sources` to the prompt without its last token.

    Returns:
        How many tokens were in the target's cache.
    """
    told = of_tokens(progress, "reading the prompt")
    features, known = _read(target, tokens, sources, told)
    for source in sources:
        told = of_tokens(progress, "reading the prompt (draft)")
        source.begin(tokens, told, features=features)
    return known


def _read(
    target: KVSequence,
    tokens: list[int],
    sources: Sequence[Source],
    progress: PrefillProgress | None,
) -> tuple[Rows | None, int]:
    """Bring the target's cache to the prompt without its last token.

    Returns:
        The features that `sources` want, and how many tokens were in the cache.
    """
    known = target.reuse(tokens[:-1])
    wanted = max((source.lacks(tokens) for source in sources), default=0)
    if not wanted:
        target.prefill(tokens[known:-1], progress)
        return None, known
    # Rows in the cache whose features were not kept are evaluated anew.
    known = target.reuse(tokens[: min(known, len(tokens) - 1 - wanted)])
    return target.prefill_hidden(tokens[known:-1], wanted, progress), known


def neutral(vocab: Vocab, n: int) -> list[int]:
    """`n` tokens of a plain text, to measure passes on."""
    sentence = vocab.tokenize(_SENTENCE)
    return (sentence * -(-n // len(sentence)))[:n]
