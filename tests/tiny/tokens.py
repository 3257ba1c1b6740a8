"""Default vocabularies, SentencePiece ones, and the kinds of tokens that they are made of."""

from __future__ import annotations

import string
from itertools import chain, islice, product

import gguf

UNK, BOS, EOS = 0, 1, 2
SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
BYTE_LEVEL = len(SPECIAL) + len(BYTES) + 1
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vocabulary(n_vocab: int, *, eos: int = EOS) -> list[str]:
    """The default tokens: special ones, bytes if there is room for all, characters, pairs, triples.

    `eos` is where "</s>" stands. With `eos` 0 or 1 there is none, and <unk> or <s> plays its part:
    llama.cpp does not let a SentencePiece vocabulary go without an end-of-sequence token.
    """
    letters = string.ascii_lowercase
    characters = "▁" + letters + string.digits + string.punctuation + string.ascii_uppercase
    words = chain(
        BYTES if n_vocab >= BYTE_LEVEL else (),
        characters,
        map("".join, product("etaoin▁", letters)),
        map("".join, product(("▁t", "▁a", "th", "in"), letters)),
    )
    special = SPECIAL if eos >= len(SPECIAL) - 1 else SPECIAL[:-1]
    tokens = [*special[:2], *islice(words, max(0, n_vocab - len(special)))]
    if len(special) == len(SPECIAL):
        tokens.insert(eos, special[EOS])
    if len(tokens) != n_vocab or not 0 <= eos < n_vocab:
        raise ValueError(f"no default vocabulary of {n_vocab} tokens with eos {eos}")
    return tokens


def token_type(token: str) -> gguf.TokenType:
    if token == SPECIAL[UNK]:
        return gguf.TokenType.UNKNOWN
    if token in BYTES:
        return gguf.TokenType.BYTE
    if len(token) > 2 and token.startswith("<") and token.endswith(">"):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.NORMAL
