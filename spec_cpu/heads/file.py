"""Draft heads as files: one GGUF with the head's weights and the target that it was made for.

llama.cpp runs it as a llama model of one block whose inputs come as embeddings. It refuses tensors
that it does not know, but not keys: what else belongs to the head is in keys `spec_cpu.head.*`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spec_cpu.errors import ModelError, UsageError
from spec_cpu.llama.gguf import check_model_file
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import FORMATS
from spec_cpu.llama.tensors import GgufFile, find_tensor

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]

EAGLE = "eagle"
VERSION = 1
QUANTIZATIONS = ("Q8_0", "Q4_0", "F16")
"""What the matrices of a head may be written as."""

_KEY = "spec_cpu.head."
_ARCHITECTURE = "llama"


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


@dataclass(frozen=True, slots=True)
class EagleWeights:
    """An EAGLE head: a transformer block over (feature, embedding of the next token).

    Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty". The input
    at position i is `combine_feature @ f_i + combine_embedding @ e(t_{i+1}) + bias`, where f_i is
    the target's hidden state after its last norm and e the target's own embedding; the logits
    predict t_{i+2}, and the hidden state after `output_norm` stands for f_{i+1}.

    Matrices are float32 arrays (outputs, inputs); n is the width of head and target. Queries and
    keys are as llama.cpp's llama models have them: rotation turns adjacent pairs of elements.

    Attributes:
        tokens: int32, (V,): the target's id of each output, all different.
        combine_feature, combine_embedding: (n, n). bias: (n,). In float16 in the file; the bias in
            float32.
        output: (V, n): a row for each of `tokens`.
        output_norm, attn_norm, ffn_norm: (n,).
        attn_q, attn_output: (n, n). attn_k, attn_v: (n / n_head * n_head_kv, n).
        ffn_gate, ffn_up: (n_ff, n). ffn_down: (n, n_ff).
        n_head, n_head_kv: of queries, and of keys and values.
        rope_base: of the rotation's frequencies.
        norm_eps: of the RMS norms.
        n_ctx: the longest text that it is meant for.
    """

    tokens: Ids
    combine_feature: Floats
    combine_embedding: Floats
    bias: Floats
    output: Floats
    output_norm: Floats
    attn_norm: Floats
    attn_q: Floats
    attn_k: Floats
    attn_v: Floats
    attn_output: Floats
    ffn_norm: Floats
    ffn_gate: Floats
    ffn_up: Floats
    ffn_down: Floats
    n_head: int
    n_head_kv: int
    rope_base: float
    norm_eps: float
    n_ctx: int

    def __post_init__(self) -> None:
        n, n_ff, v = len(self.bias), len(self.ffn_up), len(self.tokens)
        kv = n // self.n_head * self.n_head_kv
        shapes = {
            "tokens": (v,),
            "bias": (n,),
            "output": (v, n),
            "attn_k": (kv, n),
            "attn_v": (kv, n),
            "ffn_gate": (n_ff, n),
            "ffn_up": (n_ff, n),
            "ffn_down": (n, n_ff),
            **dict.fromkeys(("output_norm", "attn_norm", "ffn_norm"), (n,)),
            **dict.fromkeys(("combine_feature", "combine_embedding"), (n, n)),
            **dict.fromkeys(("attn_q", "attn_output"), (n, n)),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} is {getattr(self, name).shape}, not {shape}")
        if len(set(self.tokens.tolist())) != v:
            raise ValueError("a token has two outputs")


def write_eagle(
    path: Path,
    weights: EagleWeights,
    target: HeadTarget,
    *,
    quantization: str = "Q8_0",
    acceptance: Sequence[float] = (),
    card: str = "",
) -> None:
    """Write a head. Needs the package `gguf` (the extra "train").

    Outputs are sorted by their token's id: `read_head` gives them in that order.

    Args:
        quantization: of the block's matrices and the output; one of `QUANTIZATIONS`.
        acceptance: measured: how often the token at each depth is accepted if those before it were.
        card: what it was trained on, and how, in a person's words.

    Raises:
        UsageError: an unknown quantization.
        ValueError: the width is not that of `target`, or a token is none of its.
    """
    import gguf

    if quantization not in QUANTIZATIONS:
        raise UsageError(f"no such quantization: {quantization}; one of {', '.join(QUANTIZATIONS)}")
    n_embd = len(weights.bias)
    if n_embd != target.n_embd:
        raise ValueError(f"the head's width is {n_embd}, the target's {target.n_embd}")
    order = weights.tokens.argsort()
    tokens = weights.tokens[order]
    if tokens[0] < 0 or tokens[-1] >= target.n_vocab:
        raise ValueError(f"the target has tokens 0 .. {target.n_vocab - 1}")
    part = path.with_name(f".{path.name}.part")
    writer: Any = gguf.GGUFWriter(part, _ARCHITECTURE)
    _write_sizes(writer, weights, quantization, f"EAGLE head for {target.name}")
    _write_identity(writer, target, acceptance, card)
    _write_array(writer, "tokens", tokens.astype(np.int32))
    combine = np.hstack([weights.combine_feature, weights.combine_embedding])
    _write_array(writer, "combine", combine.astype(np.float16).view(np.uint16).ravel())
    _write_array(writer, "combine_bias", weights.bias)
    kind = gguf.GGMLQuantizationType[quantization]
    for field, name in _TENSORS.items():
        values = getattr(weights, field).astype(np.float32)
        if field == "output":
            values = values[order]
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)  # what has the name `path` is complete


_TENSORS = {
    "output": "token_embd.weight",  # tied: llama.cpp takes it for the output, too
    "output_norm": "output_norm.weight",
    **{
        field.name: f"blk.0.{field.name}.weight"
        for field in fields(EagleWeights)
        if field.name.startswith(("attn_", "ffn_"))
    },
}


def _write_sizes(writer: Any, weights: EagleWeights, quantization: str, name: str) -> None:
    n_embd_head = len(weights.bias) // weights.n_head
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(FORMATS[quantization])
    writer.add_context_length(weights.n_ctx)
    writer.add_embedding_length(len(weights.bias))
    writer.add_block_count(1)
    writer.add_feed_forward_length(len(weights.ffn_up))
    writer.add_head_count(weights.n_head)
    writer.add_head_count_kv(weights.n_head_kv)
    writer.add_rope_dimension_count(n_embd_head)
    writer.add_rope_freq_base(weights.rope_base)
    writer.add_layer_norm_rms_eps(weights.norm_eps)
    writer.add_vocab_size(len(weights.tokens))
    writer.add_tokenizer_model("none")


def _write_identity(
    writer: Any, target: HeadTarget, acceptance: Sequence[float], card: str
) -> None:
    writer.add_string(f"{_KEY}kind", EAGLE)
    writer.add_uint32(f"{_KEY}version", VERSION)
    writer.add_string(f"{_KEY}card", card)
    for field in fields(HeadTarget):
        value = getattr(target, field.name)
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(f"{_KEY}target.{field.name}", value)
    if acceptance:
        _write_array(writer, "acceptance", np.asarray(acceptance, np.float32))


def _write_array(writer: Any, key: str, values: NDArray[Any]) -> None:
    import gguf

    kind = gguf.GGUFValueType[values.dtype.name.upper()]
    writer.add_key_value(f"{_KEY}{key}", values.tolist(), gguf.GGUFValueType.ARRAY, sub_type=kind)


@dataclass(frozen=True, slots=True)
class Head:
    """What a head's file says beside the weights that llama.cpp runs.

    Attributes:
        kind: "eagle".
        tokens: int32, (V,), ascending: the target's id of each output.
        combine_feature, combine_embedding: float32, (n, n). bias: float32, (n,). See
            `EagleWeights`.
        acceptance: measured by depth, if it was.
        card: what it was trained on.
    """

    path: Path
    kind: str
    target: HeadTarget
    tokens: Ids
    combine_feature: Floats
    combine_embedding: Floats
    bias: Floats
    acceptance: tuple[float, ...]
    card: str


def is_head(path: Path) -> bool:
    """Is the GGUF at `path` a head? Errors: `check_model_file`."""
    check_model_file(path)
    with GgufFile(path) as file:
        return file.text(f"{_KEY}kind") is not None


def read_head(path: Path) -> Head:
    """Read a head's file.

    Raises:
        UsageError: no such file.
        ModelError: not a head, one of another kind or a later version, damaged, or truncated.
    """
    check_model_file(path)
    with GgufFile(path) as file:
        _check_readable(file)
        target = HeadTarget(
            name=_text(file, "target.name"),
            fingerprint=_text(file, "target.fingerprint"),
            n_embd=_number(file, "target.n_embd"),
            n_vocab=_number(file, "target.n_vocab"),
            vocabulary=_text(file, "target.vocabulary"),
        )
        n = target.n_embd
        tokens = _numbers(file, "tokens", np.int32)
        combine = _numbers(file, "combine", np.uint16, 2 * n * n).view(np.float16)
        bias = _numbers(file, "combine_bias", np.float32, n)
        measured = file.numbers(f"{_KEY}acceptance", np.float32)
        card = file.text(f"{_KEY}card") or ""
        output = file.tensor(_TENSORS["output"])
    if output is None or output.shape != (len(tokens), n):
        raise _damaged(path, "its output does not fit its tokens")
    if (np.diff(tokens) <= 0).any() or tokens[0] < 0 or tokens[-1] >= target.n_vocab:
        raise _damaged(path, "its tokens are not the target's, in ascending order")
    feature, embedding = np.hsplit(combine.reshape(n, 2 * n).astype(np.float32), 2)
    return Head(
        path=path,
        kind=EAGLE,
        target=target,
        tokens=tokens,
        combine_feature=np.ascontiguousarray(feature),
        combine_embedding=np.ascontiguousarray(embedding),
        bias=bias,
        acceptance=() if measured is None else tuple(measured.tolist()),
        card=card,
    )


def _check_readable(file: GgufFile) -> None:
    kind = file.text(f"{_KEY}kind")
    if kind is None:
        raise ModelError(f"{file.path} is no draft head: train one, or give it as a model")
    version = file.number(f"{_KEY}version")
    if kind != EAGLE or version is None or version > VERSION:
        raise ModelError(
            f"{file.path} is a draft head of kind {kind}, version {version}; this spec-cpu knows "
            f"{EAGLE}, version {VERSION}: update spec-cpu, or use another head"
        )


def _text(file: GgufFile, key: str) -> str:
    text = file.text(_KEY + key)
    if text is None:
        raise _damaged(file.path, f"it lacks {_KEY}{key}")
    return text


def _number(file: GgufFile, key: str) -> int:
    number = file.number(_KEY + key)
    if number is None or number < 1:
        raise _damaged(file.path, f"it lacks {_KEY}{key}")
    return int(number)


def _numbers(file: GgufFile, key: str, dtype: DTypeLike, n: int | None = None) -> NDArray[Any]:
    numbers = file.numbers(_KEY + key, dtype)
    if numbers is None or not len(numbers) or len(numbers) != (n or len(numbers)):
        raise _damaged(file.path, f"{_KEY}{key} is missing, or not of the right size")
    return numbers


def _damaged(path: Path, cause: str) -> ModelError:
    return ModelError(f"{path} is a damaged draft head ({cause}): download or make it again")


def check_target(head: Head, model: Model) -> str | None:
    """Raise unless `head` can draft for `model`; perhaps a notice that it may do so badly.

    It can for a model of the same vocabulary and width, or for one that was widened with zeros.

    Raises:
        ModelError: it was made for another model.
    """
    made_for = head.target
    name = head.path.name
    if model.vocab.n != made_for.n_vocab or vocabulary_of(model) != made_for.vocabulary:
        difference = f"{model.path.name} has another vocabulary"
    elif model.n_embd != made_for.n_embd and not _is_padded(model, made_for.n_embd):
        difference = f"{model.path.name} is {model.n_embd:,} wide, not {made_for.n_embd:,}"
    elif model.fingerprint == made_for.fingerprint:
        return None
    else:
        return (
            f"{name} was made for another file of this kind ({made_for.name}): "
            "fewer of its drafts may be accepted"
        )
    raise ModelError(
        f"{name} is a draft head for {made_for.name}, and {difference}: use a head that was made "
        "for this target"
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
