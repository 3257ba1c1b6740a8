"""What the files of all draft heads share: one GGUF with the head and the target it is for.

llama.cpp runs it as a llama model of one block whose inputs come as embeddings. It refuses tensors
that it does not know, but not keys: what else belongs to the head is in keys `spec_cpu.head.*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spec_cpu.cache import replacing
from spec_cpu.errors import ModelError, UsageError
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.quantize import FORMATS
from spec_cpu.llama.tensors import GgufFile

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]

EAGLE, MEDUSA = "eagle", "medusa"
KINDS = (EAGLE, MEDUSA)
VERSION = 1
QUANTIZATIONS = ("Q8_0", "Q4_0", "F16")
"""What the matrices of a head may be written as."""

OUTPUT = "token_embd.weight"  # tied: llama.cpp takes it for the output, too
OUTPUT_NORM = "output_norm.weight"

_KEY = "spec_cpu.head."
_LARGEST = 127  # of 8 bits
_ARCHITECTURE = "llama"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the one block.

    Attributes:
        n_embd_head: of a query, a key and a value.
        n_ctx: the longest text that it is meant for.
    """

    n_ff: int
    n_head: int
    n_head_kv: int
    n_embd_head: int
    rope_base: float
    norm_eps: float
    n_ctx: int


@dataclass(frozen=True, slots=True)
class Label:
    """What every head says of itself.

    Attributes:
        tokens: int32, (V,), all different: the target's id of each output. Ascending, where it was
            read from a file.
        acceptance: measured: how often the token at each depth is accepted if those before it were.
        card: what it was trained on, and how, in a person's words.
    """

    kind: str
    target: HeadTarget
    tokens: Ids
    acceptance: Sequence[float] = ()
    card: str = ""


class HeadWriter:
    """Adds to a head's file. Made by `written`."""

    def __init__(self, writer: Any, quantization: str, order: NDArray[np.intp]) -> None:
        self._writer = writer
        self._quantization = quantization
        self._order = order

    def array(self, key: str, values: NDArray[Any]) -> None:
        """Add a key with a flat array."""
        import gguf

        kind = gguf.GGUFValueType[values.dtype.name.upper()]
        self._writer.add_key_value(
            f"{_KEY}{key}", values.tolist(), gguf.GGUFValueType.ARRAY, sub_type=kind
        )

    def in_8_bits(self, key: str, values: Floats) -> None:
        """Add a matrix under `key`, each row in whole numbers and a scale. See `rows_in_8_bits`."""
        scales = np.abs(values).max(axis=1) / np.float32(_LARGEST)
        scales[scales == 0.0] = 1.0
        self.array(key, np.rint(values / scales[:, None]).astype(np.int8).ravel())
        self.array(f"{key}_scales", scales)

    def output(self, values: Floats) -> None:
        """Add the output: (V, n), a row for each of the label's tokens."""
        self.matrix(OUTPUT, values[self._order])

    def matrix(self, name: str, values: Floats) -> None:
        """Add a tensor in the file's quantization."""
        import gguf

        kind = gguf.GGMLQuantizationType[self._quantization]
        self._writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def exact(self, name: str, values: Floats) -> None:
        """Add a tensor in single precision."""
        self._writer.add_tensor(name, values.astype(np.float32))


@contextmanager
def written(path: Path, label: Label, sizes: Sizes, quantization: str) -> Iterator[HeadWriter]:
    """A file to add to; it is at `path` once it is complete. Needs the package `gguf`.

    Outputs are sorted by their token's id.

    Raises:
        UsageError: an unknown quantization.
        ValueError: a token is none of the target's.
    """
    import gguf

    if quantization not in QUANTIZATIONS:
        raise UsageError(f"no such quantization: {quantization}; one of {', '.join(QUANTIZATIONS)}")
    order = label.tokens.argsort()
    tokens = label.tokens[order].astype(np.int32)
    if tokens[0] < 0 or tokens[-1] >= label.target.n_vocab:
        raise ValueError(f"the target has tokens 0 .. {label.target.n_vocab - 1}")
    with replacing(path) as part:
        writer: Any = gguf.GGUFWriter(part, _ARCHITECTURE)
        head = HeadWriter(writer, quantization, order)
        _write_sizes(writer, label, sizes, quantization)
        _write_label(writer, label)
        head.array("tokens", tokens)
        if label.acceptance:
            head.array("acceptance", np.asarray(label.acceptance, np.float32))
        yield head
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _write_sizes(writer: Any, label: Label, sizes: Sizes, quantization: str) -> None:
    writer.add_type("model")
    writer.add_name(f"{label.kind} head for {label.target.name}")
    writer.add_file_type(FORMATS[quantization])
    writer.add_context_length(sizes.n_ctx)
    writer.add_embedding_length(label.target.n_embd)
    writer.add_block_count(1)
    writer.add_feed_forward_length(sizes.n_ff)
    writer.add_head_count(sizes.n_head)
    writer.add_head_count_kv(sizes.n_head_kv)
    writer.add_key_length(sizes.n_embd_head)
    writer.add_value_length(sizes.n_embd_head)
    writer.add_rope_dimension_count(sizes.n_embd_head)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_layer_norm_rms_eps(sizes.norm_eps)
    writer.add_vocab_size(len(label.tokens))
    writer.add_tokenizer_model("none")


def _write_label(writer: Any, label: Label) -> None:
    writer.add_string(f"{_KEY}kind", label.kind)
    writer.add_uint32(f"{_KEY}version", VERSION)
    writer.add_string(f"{_KEY}card", label.card)
    for field in fields(HeadTarget):
        value = getattr(label.target, field.name)
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(f"{_KEY}target.{field.name}", value)


def kind_of(file: GgufFile) -> str | None:
    """What kind of head the file is; None: none."""
    return file.text(f"{_KEY}kind")


def read_label(file: GgufFile) -> Label:
    """Raises ModelError: no head, one of another kind or a later version, or damaged."""
    kind, version = kind_of(file), file.number(f"{_KEY}version")
    if kind is None:
        raise ModelError(f"{file.path} is no draft head: train one, or give it as a model")
    if kind not in KINDS or version is None or version > VERSION:
        raise ModelError(
            f"{file.path} is a draft head of kind {kind}, version {version}; this spec-cpu knows "
            f"{' and '.join(KINDS)}, version {VERSION}: update spec-cpu, or use another head"
        )
    target = HeadTarget(
        name=_text(file, "target.name"),
        fingerprint=_text(file, "target.fingerprint"),
        n_embd=_number(file, "target.n_embd"),
        n_vocab=_number(file, "target.n_vocab"),
        vocabulary=_text(file, "target.vocabulary"),
    )
    tokens = numbers(file, "tokens", np.int32)
    output = file.tensor(OUTPUT)
    if output is None or output.shape != (len(tokens), target.n_embd):
        raise damaged(file.path, "its output does not fit its tokens")
    if (np.diff(tokens) <= 0).any() or tokens[0] < 0 or tokens[-1] >= target.n_vocab:
        raise damaged(file.path, "its tokens are not the target's, in ascending order")
    measured = file.numbers(f"{_KEY}acceptance", np.float32)
    acceptance = () if measured is None else tuple(measured.tolist())
    return Label(kind, target, tokens, acceptance, file.text(f"{_KEY}card") or "")


def numbers(file: GgufFile, key: str, dtype: DTypeLike, n: int | None = None) -> NDArray[Any]:
    """The array under a head's `key`, of `n` numbers if that is given.

    Raises:
        ModelError: it is missing, or of another type or length.
    """
    values = file.numbers(_KEY + key, dtype)
    if values is None or not len(values) or len(values) != (n or len(values)):
        raise damaged(file.path, f"{_KEY}{key} is missing, or not of the right size")
    return values


def rows_in_8_bits(file: GgufFile, key: str, rows: int, columns: int) -> Floats:
    """The matrix that `HeadWriter.in_8_bits` added: float32, (rows, columns). Errors: `numbers`."""
    values = numbers(file, key, np.int8, rows * columns).reshape(rows, columns)
    matrix: Floats = values * numbers(file, f"{key}_scales", np.float32, rows)[:, None]
    return matrix


def damaged(path: Path, cause: str) -> ModelError:
    """The error for a head that does not make sense."""
    return ModelError(f"{path} is a damaged draft head ({cause}): download or make it again")


def _text(file: GgufFile, key: str) -> str:
    text = file.text(_KEY + key)
    if text is None:
        raise damaged(file.path, f"it lacks {_KEY}{key}")
    return text


def _number(file: GgufFile, key: str) -> int:
    number = file.number(_KEY + key)
    if number is None or number < 1:
        raise damaged(file.path, f"it lacks {_KEY}{key}")
    return int(number)
