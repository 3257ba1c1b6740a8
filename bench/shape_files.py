"""GGUF files in the shapes of public models, with random weights.

What a pass costs depends on the sizes of the matrices and on their formats, not on what they hold:
a file of random weights takes the time and the memory of the model whose shape it has. Hyper-
parameters are those that the models' publishers give, and each tensor has the format that
llama.cpp's quantization gives it. Needs gguf (the extra "test").
"""

from __future__ import annotations

import ctypes
import math
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as GGMLType
from numpy.typing import NDArray

from spec_cpu.errors import UsageError
from spec_cpu.llama.gguf import declare
from spec_cpu.llama.quantize import FORMATS as FILE_TYPES

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

BASE = {"Q4_K_M": GGMLType.Q4_K, "Q4_0": GGMLType.Q4_0, "Q8_0": GGMLType.Q8_0}
"""The formats of files, and that of most of their matrices."""

FALLBACK = {GGMLType.Q4_K: GGMLType.Q5_0, GGMLType.Q6_K: GGMLType.Q8_0}
"""What takes the place of a format whose blocks a row is no multiple of."""

BLOCKS = 4099  # of 256 random weights: a prime number, so that no two rows begin alike
BLOCK = 256
BIAS_STD = 0.1
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The hyper-parameters of a model.

    Attributes:
        head: elements of a head's key, and of its value.
        tied: is the output matrix the embedding?
        rope_base: of the rotation of positions.
        rope_factor: by which positions are stretched for long texts; Llama 3.1's way where the
            architecture is llama, all of them alike elsewhere.
        window: tokens that five layers of six see (Gemma 3).
    """

    architecture: str
    layers: int
    embd: int
    ff: int
    heads: int
    heads_kv: int
    head: int
    vocab: int
    context: int
    tied: bool
    rope_base: float
    eps: float = 1e-6
    rope_factor: float | None = None
    window: int | None = None


SHAPES = {
    "llama-3.1-8b": Shape(
        "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, False, 5e5, 1e-5, rope_factor=8.0
    ),
    "llama-3.2-1b": Shape(
        "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, True, 5e5, 1e-5, rope_factor=32.0
    ),
    "qwen2.5-7b": Shape("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, False, 1e6),
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, True, 1e6),
    "qwen3-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, True, 1e6),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, True, 1e6),
    "gemma-3-4b": Shape(
        "gemma3",
        34,
        2560,
        10240,
        8,
        4,
        256,
        262208,
        131072,
        True,
        1e6,
        rope_factor=8.0,
        window=1024,
    ),
    "gemma-3-270m": Shape("gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, True, 1e6, window=512),
}

DRAFTS = {
    "llama-3.1-8b": "llama-3.2-1b",
    "qwen2.5-7b": "qwen2.5-0.5b",
    "qwen3-4b": "qwen3-0.6b",
    "gemma-3-4b": "gemma-3-270m",
}
"""The small model of the same family that drafts for a large one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a model: its name, and its shape, rows first."""

    name: str
    shape: tuple[int, ...]
    layer: int | None = None

    @property
    def part(self) -> str:
        """What it is for: its name without the layer, and without "weight" or "bias"."""
        return self.name.split(".")[-2]


def tensors(shape: Shape) -> Iterator[Tensor]:
    """All tensors of a model of this shape, in the order of the file."""
    query, key = shape.heads * shape.head, shape.heads_kv * shape.head
    yield Tensor("token_embd.weight", (shape.vocab, shape.embd))
    yield Tensor("output_norm.weight", (shape.embd,))
    if not shape.tied:
        yield Tensor("output.weight", (shape.vocab, shape.embd))
    if _stretches_by_frequency(shape):
        yield Tensor("rope_freqs.weight", (shape.head // 2,))
    sizes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (shape.embd,),
        "attn_q.weight": (query, shape.embd),
        "attn_k.weight": (key, shape.embd),
        "attn_v.weight": (key, shape.embd),
        "attn_output.weight": (shape.embd, query),
        "ffn_norm.weight": (shape.embd,),
        "ffn_gate.weight": (shape.ff, shape.embd),
        "ffn_up.weight": (shape.ff, shape.embd),
        "ffn_down.weight": (shape.embd, shape.ff),
    }
    if shape.architecture == "qwen2":
        sizes |= {"attn_q.bias": (query,), "attn_k.bias": (key,), "attn_v.bias": (key,)}
    if shape.architecture in ("qwen3", "gemma3"):
        sizes |= {"attn_q_norm.weight": (shape.head,), "attn_k_norm.weight": (shape.head,)}
    if shape.architecture == "gemma3":
        sizes |= {
            "post_attention_norm.weight": (shape.embd,),
            "post_ffw_norm.weight": (shape.embd,),
        }
    for layer in range(shape.layers):
        for name, size in sizes.items():
            yield Tensor(f"blk.{layer}.{name}", size, layer)


def parameters(shape: Shape) -> int:
    """How many weights a model of this shape has."""
    return sum(math.prod(tensor.shape) for tensor in tensors(shape))


def tensor_type(tensor: Tensor, shape: Shape, file_format: str) -> GGMLType:
    """The format of a tensor in a file, as llama.cpp's quantization (without an importance matrix)
    chooses it.
    """
    if len(tensor.shape) == 1:
        return GGMLType.F32
    chosen = BASE[file_format]
    if tensor.part == "output" or (tensor.part == "token_embd" and shape.tied):
        chosen = chosen if chosen == GGMLType.Q8_0 else GGMLType.Q6_K
    elif file_format == "Q4_K_M" and tensor.part in ("attn_v", "ffn_down"):
        chosen = GGMLType.Q6_K if _more_bits(tensor, shape.layers) else chosen
    block, _ = gguf.GGML_QUANT_SIZES[chosen]
    return chosen if tensor.shape[-1] % block == 0 else FALLBACK[chosen]


def _more_bits(tensor: Tensor, layers: int) -> bool:
    """Is it of the first or the last eighth of the layers, or of every third between them?"""
    assert tensor.layer is not None
    first, last = layers // 8, 7 * layers // 8
    return not first <= tensor.layer < last or (tensor.layer - first) % 3 == 2


def write(shape: Shape, name: str, path: Path, file_format: str, *, seed: int = 0) -> None:
    """Write a model of this shape with random weights; what has the name `path` is complete.

    Outputs of every matrix are about as large as its inputs, so that all values stay ordinary.

    Args:
        name: what the file says it is.
        file_format: one of `BASE`.

    Raises:
        UsageError: an unknown format, or not enough room on the disk.
    """
    if file_format not in BASE:
        raise UsageError(f"no format named {file_format}: one of {', '.join(BASE)}")
    kinds = {tensor: tensor_type(tensor, shape, file_format) for tensor in tensors(shape)}
    sizes = {tensor: _n_bytes(tensor.shape, kind) for tensor, kind in kinds.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_room(path, sum(sizes.values()))
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        part = Path(folder) / path.name
        writer: Any = gguf.GGUFWriter(part, shape.architecture)
        _describe(writer, shape, name, file_format)
        for tensor, kind in kinds.items():
            # Described before any is written, so that none has to wait in memory.
            writer.add_tensor_info(
                tensor.name, tensor.shape, np.dtype(np.float32), sizes[tensor], raw_dtype=kind
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, kind in kinds.items():
            if len(tensor.shape) == 1:
                writer.write_tensor_data(_vector(tensor, shape, seed))
            else:
                writer.write_tensor_data(_matrix(tensor, kind, sizes[tensor], seed))
        writer.close()
        part.replace(path)


def _check_room(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise UsageError(
            f"{path} needs {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free in "
            f"{path.parent}: choose another --folder"
        )


def _n_bytes(shape: tuple[int, ...], kind: GGMLType) -> int:
    return math.prod(gguf.quant_shape_to_byte_shape(shape, kind))


def _describe(writer: Any, shape: Shape, name: str, file_format: str) -> None:
    """The metadata: hyper-parameters, and a vocabulary of the right size."""
    writer.add_type("model")
    writer.add_name(f"random weights in the shape of {name}")
    writer.add_file_type(FILE_TYPES[file_format])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(shape.vocab)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embd)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ff)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads_kv)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)
    if shape.window is not None:
        writer.add_sliding_window(shape.window)
    if shape.rope_factor is not None and not _stretches_by_frequency(shape):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(shape.rope_factor)
    _add_vocabulary(writer, shape.vocab)


def _add_vocabulary(writer: Any, n: int) -> None:
    """`n` tokens: bytes, of which any text can be made, and numbered ones for the rest."""
    known = [*SPECIAL, *BYTES, "▁"]
    tokens = [*known, *(f"[{i}]" for i in range(len(known), n))]
    special = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types = [*special, *[gguf.TokenType.BYTE] * len(BYTES)]
    types += [gguf.TokenType.NORMAL] * (n - len(types))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(n)])
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def _vector(tensor: Tensor, shape: Shape, seed: int) -> Floats:
    if tensor.part == "rope_freqs":
        return frequency_factors(shape)
    if tensor.name.endswith(".bias"):
        rng = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
        return rng.normal(0.0, BIAS_STD, tensor.shape).astype(np.float32)
    return np.ones(tensor.shape, np.float32)


def _stretches_by_frequency(shape: Shape) -> bool:
    return shape.architecture == "llama" and shape.rope_factor is not None


def frequency_factors(shape: Shape) -> Floats:
    """By how much each frequency of the rotation is divided, (head / 2,): Llama 3.1's scaling.

    Turns longer than the context of 8,192 tokens that the model was first trained on are stretched,
    turns shorter than a quarter of it are not, and between them the change is smooth.
    """
    trained, low, high = 8192, 1.0, 4.0
    turns = trained / (2 * math.pi * shape.rope_base ** (np.arange(0, shape.head, 2) / shape.head))
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    factors: Floats = (1 / ((1 - kept) / (shape.rope_factor or 1.0) + kept)).astype(np.float32)
    return factors


def _matrix(tensor: Tensor, kind: GGMLType, n_bytes: int, seed: int) -> Bytes:
    """The bytes of a quantized matrix: the same random blocks again and again."""
    columns = tensor.shape[-1]
    blocks = random_blocks(kind, columns**-0.5, seed)
    # Each matrix begins with another block: layers that are all alike would add up.
    start = zlib.crc32(tensor.name.encode()) % BLOCKS
    return np.resize(np.roll(blocks, start, axis=0), n_bytes)


_quantize_rows = declare(
    "ggml_quantize_chunk",
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
)


@lru_cache(maxsize=32)
def random_blocks(kind: GGMLType, std: float, seed: int) -> Bytes:
    """Random weights as llama.cpp quantizes them: (`BLOCKS`, bytes of `BLOCK` weights)."""
    rng = np.random.default_rng([seed, int(kind)])
    weights = rng.normal(0.0, std, (BLOCKS, BLOCK)).astype(np.float32)
    blocks = np.empty((BLOCKS, _n_bytes((BLOCK,), kind)), np.uint8)
    _quantize_rows(kind, weights.ctypes.data, blocks.ctypes.data, 0, BLOCKS, BLOCK, None)
    return blocks
