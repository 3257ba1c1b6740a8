"""A tiny model that can be talked to."""

from __future__ import annotations

from pathlib import Path

import tiny

TOKENS = [*tiny.vocabulary(98), "\n", "<|im_start|>", "<|im_end|>"]


def write_talker(path: Path, **changed: object) -> Path:
    """A target of 101 tokens with a chat template whose markers it knows."""
    settings = {
        "tokens": TOKENS,
        "eos": len(TOKENS) - 1,
        "n_ctx": 512,
        "scale": 4,
        "chat_template": tiny.CHATML,
    }
    return tiny.write_llama(path, **{**settings, **changed})  # type: ignore[arg-type]
