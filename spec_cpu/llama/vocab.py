"""A model's vocabulary: text to tokens, tokens to text, and whether two models share one."""

from __future__ import annotations

import codecs
import ctypes
from collections.abc import Sequence
from functools import cached_property
from itertools import repeat
from typing import Protocol

import llama_cpp
import numpy as np
from llama_cpp.llama_cpp import _lib
from numpy.typing import NDArray

from spec_cpu.errors import UsageError, VocabularyMismatchError

# Called once a token of the vocabulary, so without llama_cpp's wrappers.
_text_of = _lib.llama_vocab_get_text
_is_end = _lib.llama_vocab_is_eog
_attributes_of = _lib.llama_vocab_get_attr
_no_text = b""
_SPACE = "\u2581"  # how SentencePiece writes a space


class Owner(Protocol):
    """A model, to its vocabulary."""

    @property
    def vocab_handle(self) -> int:
        """llama.cpp's pointer. Raises ModelError once the model was closed."""
        ...


class Vocab:
    """The vocabulary of a loaded model. Token ids are 0 .. `n` - 1.

    What it does not know yet it asks llama.cpp: a ModelError once the model was closed.
    """

    def __init__(self, model: Owner) -> None:
        self._model = model
        self._pieces: dict[int, bytes] = {}
        handle = self._handle
        self.n = int(llama_cpp.llama_vocab_n_tokens(handle))
        self.bos = int(llama_cpp.llama_vocab_bos(handle))
        self.eos = int(llama_cpp.llama_vocab_eos(handle))
        self._type = int(llama_cpp.llama_vocab_type(handle))

    @property
    def _handle(self) -> int:
        return self._model.vocab_handle

    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Tokens of `text`.

        Args:
            text: any text.
            add_special: put what the model wants before a text (a BOS token) before it, unless it
                begins so. Nothing is put behind it, whatever the model wants: an answer follows.
            parse_special: the names of control tokens in the text are those tokens. Else they are
                text as any other.

        Raises:
            UsageError: the vocabulary has no token for a part of the text.
        """
        self._check_characters(text)
        tokens = self._tokens(text, parse_special=parse_special)
        if not add_special or tokens[:1] == self._opening:
            return tokens
        return self._opening + tokens

    @cached_property
    def _opening(self) -> list[int]:
        """What the model wants before a text: its BOS token, or nothing."""
        return [self.bos] if llama_cpp.llama_vocab_get_add_bos(self._handle) else []

    def _tokens(self, text: str, *, parse_special: bool) -> list[int]:
        data = text.encode("utf-8", "surrogatepass")
        size = len(data) + 8
        handle = self._handle
        while True:
            buffer = (ctypes.c_int32 * size)()
            n = llama_cpp.llama_tokenize(
                handle, data, len(data), buffer, size, False, parse_special
            )
            if n >= 0:
                return [int(token) for token in buffer[:n]]
            if n == -(2**31):
                raise UsageError("the text is too long to tokenize: give a shorter one")
            size = -n

    def _check_characters(self, text: str) -> None:
        # A SentencePiece vocabulary without byte tokens makes llama.cpp end the process on a
        # character that it lacks.
        if self._type != llama_cpp.LLAMA_VOCAB_TYPE_SPM or self._has_bytes:
            return
        known = {name.decode("utf-8", "replace") for name in self.texts}
        missing = {*text.replace(" ", _SPACE), _SPACE} - known
        if missing:
            raise UsageError(f"the model's vocabulary has no token for {min(missing)!r}")

    @cached_property
    def _has_bytes(self) -> bool:
        return b"<0x00>" in self.texts

    def piece(self, token: int) -> bytes:
        """The bytes that `token` adds to the text: none for a control token."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._render(token)
        return piece

    def _render(self, token: int) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_token_to_piece(self._handle, token, buffer, size, 0, False)
            if n >= 0:
                return bytes(buffer.raw[:n])
            size = -n

    def text(self, token: int) -> bytes:
        """The name of `token` in the vocabulary, such as `<|im_end|>`; empty if there is none."""
        return bytes(_text_of(self._handle, token)) if 0 <= token < self.n else _no_text

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end an answer (end of generation)."""
        handle = self._handle
        return frozenset(token for token in range(self.n) if _is_end(handle, token))

    @cached_property
    def controls(self) -> dict[str, int]:
        """Control tokens (and the one for what is unknown) by name."""
        return self._named(llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN)

    def controls_in(self, texts: Sequence[str]) -> dict[int, str]:
        """The control tokens that `texts` spell, with their names."""
        named = self.controls.items() if any(texts) else ()
        return {token: name for name, token in named if any(name in text for text in texts)}

    @cached_property
    def user_defined(self) -> dict[str, int]:
        """Tokens by name that llama.cpp finds in any text before it looks at anything else."""
        return self._named(llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED)

    def _named(self, attribute: int) -> dict[str, int]:
        tokens = np.flatnonzero(self._attributes & attribute).tolist()
        names = ((self.text(token).decode("utf-8", "replace"), token) for token in tokens)
        return {name: token for name, token in names if name}

    def strips_right(self, token: int) -> bool:
        """Does it swallow the space behind it?"""
        return bool(self._attributes[token] & llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP)

    @cached_property
    def _attributes(self) -> NDArray[np.int32]:
        handle, n = self._handle, self.n
        return np.fromiter(map(_attributes_of, repeat(handle), range(n)), np.int32, n)

    @cached_property
    def texts(self) -> list[bytes]:
        """The names of all tokens."""
        handle, n = self._handle, self.n
        return [_text_of(handle, token) for token in range(n)]


class Detokenizer:
    """Turns a stream of tokens into text; a character split over tokens comes out whole."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is still open."""
        return self._decoder.decode(self._vocab.piece(token))

    def flush(self) -> str:
        """What is left: a replacement character if the last one was never completed."""
        return self._decoder.decode(b"", final=True)


def check_same_vocabulary(target: Vocab, draft: Vocab) -> None:
    """Raise unless the two agree on every token they both have, and on BOS and EOS.

    One may have more tokens at its end: models of one family are padded to different sizes. A token
    that only the target has gets q = 0, one that only the draft has is never drafted, and the
    text is exact over the target's vocabulary either way.

    Raises:
        VocabularyMismatchError: naming the first difference.
    """
    for name, mine, its in (("BOS", target.bos, draft.bos), ("EOS", target.eos, draft.eos)):
        if mine != its:
            raise VocabularyMismatchError(
                f"draft and target differ in their {name} token "
                f"({_show(target, mine)} in the target, {_show(draft, its)} in the draft): "
                "use a draft of the target's own family"
            )
    shared = min(target.n, draft.n)
    if target.texts[:shared] == draft.texts[:shared]:
        return
    token = next(i for i in range(shared) if target.texts[i] != draft.texts[i])
    raise VocabularyMismatchError(
        f"draft and target have different vocabularies ({draft.n:,} and {target.n:,} tokens; "
        f"token {token} is {_quoted(draft.texts[token])} in the draft and "
        f"{_quoted(target.texts[token])} in the target): use a draft of the target's own family"
    )


def _show(vocab: Vocab, token: int) -> str:
    return f"{token} {_quoted(vocab.text(token))}" if token >= 0 else "none"


def _quoted(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
