"""Tiny random GGUF models, written in a few milliseconds, and ways to damage them.

The same arguments give the same bytes. Every tensor has a random stream of its own, named by the
seed and the tensor's name, and rows are drawn in order: a model with more layers, or with rows of
padding, agrees with the smaller one wherever both have weights.

Vocabularies are SentencePiece ones ("llama"), except for bert. From `tokens.BYTE_LEVEL` tokens on
there are tokens for all 256 bytes, and any text can be tokenized. Smaller ones know only their own
characters: tokenizing anything else throws a C++ exception out of llama_tokenize, which ends the
process. The same goes for a space where there is no "▁" token, and llama.cpp puts a space in front
of any text.
"""

from __future__ import annotations

from tiny.bert import write_bert
from tiny.damage import Damage, corrupt, truncate
from tiny.gemma3 import write_gemma3_swa
from tiny.gguf_model import DType
from tiny.llama import write_llama
from tiny.mamba import write_mamba
from tiny.no_model import write_adapter, write_bare, write_projector
from tiny.qwen2 import write_qwen2
from tiny.tokens import BOS, CHATML, EOS, SPECIAL, vocabulary

__all__ = [
    "BOS",
    "CHATML",
    "EOS",
    "SPECIAL",
    "DType",
    "Damage",
    "corrupt",
    "truncate",
    "vocabulary",
    "write_adapter",
    "write_bare",
    "write_bert",
    "write_gemma3_swa",
    "write_llama",
    "write_mamba",
    "write_projector",
    "write_qwen2",
]
