"""The target that a draft head was made for, and whether another may take its place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from spec_cpu.errors import ModelError
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import find_tensor


@dataclass(frozen=True, slots=True)
class HeadTarget:
    """The model that a head was made for.

    Attributes:
        name: what people call it.
        fingerprint: of its file (`Model.fingerprint`).
        n_embd: the width of its features, which is the head's own.
        n_vocab: its tokens.
        vocabulary: a digest of their texts.
    """

    name: str
    fingerprint: str
    n_embd: int
    n_vocab: int
    vocabulary: str

    @classmethod
    def of(cls, model: Model) -> HeadTarget:
        """What a head for `model` says of it."""
        return cls(
            model.info.name, model.fingerprint, model.n_embd, model.vocab.n, vocabulary_of(model)
        )


def vocabulary_of(model: Model) -> str:
    """16 hex digits that tell its vocabulary from any other: all token texts, in order."""
    digest = hashlib.blake2b(digest_size=8)
    for text in model.vocab.texts:
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.hexdigest()


def check_target(path: Path, made_for: HeadTarget, model: Model) -> str | None:
    """Raise unless the head at `path` can draft for `model`; a notice where it may do so badly.

    It can for a model of the same vocabulary and width, or for one that was widened with zeros.

    Raises:
        ModelError: it was made for another model.
    """
    if model.vocab.n != made_for.n_vocab or vocabulary_of(model) != made_for.vocabulary:
        difference = f"{model.path.name} has another vocabulary"
    elif model.n_embd != made_for.n_embd and not _is_padded(model, made_for.n_embd):
        difference = f"{model.path.name} is {model.n_embd:,} wide, not {made_for.n_embd:,}"
    elif model.fingerprint == made_for.fingerprint:
        return None
    else:
        return (
            f"{path.name} was made for another file of this kind ({made_for.name}): "
            "fewer of its drafts may be accepted"
        )
    raise ModelError(
        f"{path.name} is a draft head for {made_for.name}, and {difference}: use a head that was "
        "made for this target"
    )


def _is_padded(model: Model, width: int) -> bool:
    """Are all features of `model` zero from `width` on?"""
    if model.n_embd < width:
        return False
    try:
        norm = find_tensor(model.path, "output_norm.weight")
    except ModelError:
        return False
    return norm.shape[1] > width and not norm.rows([0])[0, width:].any()
