"""Widen a llama model by zero padding: the same function, the same text, more weights.

    python bench/widen.py SOURCE.gguf OUT.gguf [--heads N] [--ff N] [--type Q4_0] [--noise X]

A surrogate for a big target where none can be downloaded: it costs what a model of its size costs
and writes what the source writes, so that the source, or a relative of it, is its draft. `--noise`
makes the two differ as much as a target and a draft do. Needs gguf (the extra "test").

What makes it exact, up to the rounding of floats:

- Heads are added in whole groups (a key-value head and the query heads that share it), behind those
  there are. Query head h reads key-value head h // group as before; a head's width, and with it the
  rotation of positions and the scale of attention, stays.
- The new elements of the hidden state are zero in the embedding, and no matrix ever writes to them.
- An RMS norm divides by sqrt(sum(x²) / n + eps). With n grown to n', eps must shrink by n / n' for
  the root to shrink by sqrt(n / n'), which the norm's weights make up for.
- Where the output is tied to the embedding it remains so: neither sees the new elements.

Quantizing blocks of 32 weights again in the same format gives the same blocks: a source in Q4_0
or Q8_0 is widened without loss in its own format. In another format the text is that of the source
in this format, which is not always the text of the source: no model's is.
"""

from __future__ import annotations

import argparse
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as GGMLType
from numpy.typing import NDArray

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.llama.gguf import check_model_file
from spec_cpu.llama.quantize import FORMATS, quantize

Floats = NDArray[np.float32]

DIRECT = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""The formats that are written as they are; for others llama.cpp quantizes an F16 file."""

SHORT = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""llama.cpp's shorter names. Every matrix has the one type, so that mixes do not differ."""

HEADS_FACTOR, FF_FACTOR = 8 / 3, 4
"""The default growth, about eightfold in weights: 135 M become 1.1 B."""

CHUNK_ROWS = 2048  # at a time in single precision, to bound the memory

# The sizes of a tensor, rows first, by the last two parts of its name.
AXES = {
    "token_embd.weight": ("vocab", "embd"),
    "output.weight": ("vocab", "embd"),
    "output_norm.weight": ("embd",),
    "rope_freqs.weight": ("rope",),
    "attn_norm.weight": ("embd",),
    "attn_q.weight": ("query", "embd"),
    "attn_k.weight": ("key", "embd"),
    "attn_v.weight": ("value", "embd"),
    "attn_output.weight": ("embd", "attended"),
    "ffn_norm.weight": ("embd",),
    "ffn_gate.weight": ("ff", "embd"),
    "ffn_up.weight": ("ff", "embd"),
    "ffn_down.weight": ("embd", "ff"),
}
# No longer true, or the writer's own business.
DROPPED = {
    "general.architecture",
    "general.alignment",
    "general.file_type",
    "general.parameter_count",
    "general.quantization_version",
    "general.size_label",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How wide a model is: heads, and elements of the hidden and the feed-forward state."""

    heads: int
    heads_kv: int
    embd: int
    ff: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, metavar="SOURCE.gguf")
    parser.add_argument("out", type=Path, metavar="OUT.gguf")
    parser.add_argument("--heads", type=int, metavar="N", help="query heads (default: 8/3 as many)")
    parser.add_argument("--ff", type=int, metavar="N", help="feed-forward width (default: 4 times)")
    parser.add_argument("--type", default="Q4_0", type=str.upper, help="format (default: Q4_0)")
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="X", help="noise, in a matrix's std (default 0)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the noise (default 0)")
    given = parser.parse_args()
    try:
        sizes, n = widen(
            given.source,
            given.out,
            heads=given.heads,
            ff=given.ff,
            type_name=given.type,
            noise=given.noise,
            seed=given.seed,
        )
    except SpecCpuError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    print(
        f"{given.out}: {n / 1e6:,.0f} M weights in {given.type}, "
        f"{given.out.stat().st_size / 1e6:,.0f} MB; {sizes.heads} heads ({sizes.heads_kv} of keys "
        f"and values), hidden width {sizes.embd}, feed-forward width {sizes.ff}"
    )


def widen(
    source: Path,
    out: Path,
    *,
    heads: int | None = None,
    ff: int | None = None,
    type_name: str = "Q4_0",
    noise: float = 0.0,
    seed: int = 0,
) -> tuple[Sizes, int]:
    """Write a wider `source` to `out`; return the new sizes and the number of weights.

    Args:
        heads: query heads; the hidden state grows in proportion.
        ff: elements of the feed-forward state.
        type_name: a format of `spec_cpu.llama.quantize.FORMATS`; norms stay in F32.
        noise: the standard deviation of gaussian noise on every weight of the source, as a
            fraction of that of its matrix. The padding stays zero.
        seed: of the noise, which does not depend on the sizes.

    Raises:
        UsageError: sizes that cannot be, an unknown format, no such file.
        ModelError: `source` is not a llama model in one file that this can widen.
    """
    type_name = SHORT.get(type_name, type_name)
    if type_name not in FORMATS:
        raise UsageError(f"no format named {type_name}: one of {', '.join(sorted(FORMATS))}")
    check_model_file(source)
    reader: Any = gguf.GGUFReader(source)
    check_widenable(reader)
    old = read_sizes(reader)
    new = wider(old, heads, ff)
    written = type_name if type_name in DIRECT else "F16"
    # Written under another name first: what has the name `out` is complete.
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        part = Path(folder) / "widened.gguf"
        n = write(reader, part, old, new, GGMLType[written], noise, seed)
        if written != type_name:
            part = part.rename(part.with_stem("wide"))
            quantize(part, part.with_stem("widened"), type_name)
            part = part.with_stem("widened")
        part.replace(out)
    return new, n


def check_widenable(reader: Any) -> None:
    """Raise for anything but a dense llama model in one file."""
    architecture = value(reader, "general.architecture")
    if architecture != "llama":
        raise UsageError(f"can widen only the llama architecture, not {architecture}")
    if value(reader, "split.count", 1) > 1:
        raise UsageError("the source is split over several files: merge them first")
    unknown = [tensor.name for tensor in reader.tensors if kind(tensor.name) not in AXES]
    if unknown:
        raise UsageError(f"do not know how to widen {unknown[0]}: dense llama models only")


def read_sizes(reader: Any) -> Sizes:
    heads = value(reader, "llama.attention.head_count")
    heads_kv = value(reader, "llama.attention.head_count_kv", heads)
    ff = value(reader, "llama.feed_forward_length")
    if not all(isinstance(size, int) for size in (heads, heads_kv, ff)):
        raise UsageError("can widen only models whose layers are all of one size")
    return Sizes(heads, heads_kv, value(reader, "llama.embedding_length"), ff)


def wider(old: Sizes, heads: int | None, ff: int | None) -> Sizes:
    """The sizes asked for, or the default ones."""
    group = old.heads // old.heads_kv
    heads = round(HEADS_FACTOR * old.heads_kv) * group if heads is None else heads
    ff = FF_FACTOR * old.ff if ff is None else ff
    if heads < old.heads or ff < old.ff:
        raise UsageError(f"can only widen: at least {old.heads} heads and --ff {old.ff}")
    if heads % group:
        raise UsageError(f"{heads} heads cannot be: they come in groups of {group}")
    if old.embd * heads % old.heads:
        raise UsageError(f"{heads} heads give no whole number of hidden elements")
    return Sizes(heads, heads // group, old.embd * heads // old.heads, ff)


def write(
    reader: Any, path: Path, old: Sizes, new: Sizes, dtype: GGMLType, noise: float, seed: int
) -> int:
    """Write the widened model, one tensor at a time; return the number of weights."""
    writer: Any = gguf.GGUFWriter(path, "llama")
    copy_metadata(reader, writer, old, new)
    writer.add_file_type(FORMATS[dtype.name])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    shapes = {tensor.name: wider_shape(tensor, old, new) for tensor in reader.tensors}
    for name, shape in shapes.items():
        kept = GGMLType.F32 if len(shape) == 1 else dtype
        check_blocks(name, shape, kept)
        n_bytes = math.prod(gguf.quant_shape_to_byte_shape(shape, kept))
        # Described before any is written, so that none has to wait in memory.
        writer.add_tensor_info(name, shape, np.dtype(np.float32), n_bytes, raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        values = weights(tensor)
        if len(values.shape) == 1:
            writer.write_tensor_data(wider_vector(tensor.name, values, old, new))
            continue
        if noise:
            values = values + noise * values.std() * normal(tensor.name, values.shape, seed)
        writer.write_tensor_data(wider_matrix(values, shapes[tensor.name], dtype))
    writer.close()
    return sum(math.prod(shape) for shape in shapes.values())


def copy_metadata(reader: Any, writer: Any, old: Sizes, new: Sizes) -> None:
    """Everything the source says of itself, tokenizer and chat template too; sizes adapted."""
    eps = "llama.attention.layer_norm_rms_epsilon"
    changed = {
        "general.name": f"{value(reader, 'general.name', 'llama')} widened",
        "llama.attention.head_count": new.heads,
        "llama.attention.head_count_kv": new.heads_kv,
        "llama.embedding_length": new.embd,
        "llama.feed_forward_length": new.ff,
        eps: value(reader, eps) * old.embd / new.embd,
    }
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in DROPPED:
            continue
        content = changed.get(key, field.contents())
        if field.types[0] is not gguf.GGUFValueType.ARRAY:
            writer.add_key_value(key, content, field.types[0])
        elif content:  # the writer knows no empty arrays
            writer.add_key_value(key, content, field.types[0], sub_type=field.types[-1])


def wider_shape(tensor: Any, old: Sizes, new: Sizes) -> tuple[int, ...]:
    """The new shape, rows first. A matrix's size in heads grows as their number does."""
    growth = {
        "embd": (old.embd, new.embd),
        "ff": (old.ff, new.ff),
        "query": (old.heads, new.heads),
        "attended": (old.heads, new.heads),
        "key": (old.heads_kv, new.heads_kv),
        "value": (old.heads_kv, new.heads_kv),
    }
    shape = [int(size) for size in reversed(tensor.shape)]
    for i, axis in enumerate(AXES[kind(tensor.name)]):
        before, after = growth.get(axis, (1, 1))
        if shape[i] % before:
            raise UsageError(f"{tensor.name} has {shape[i]} elements, no multiple of {before}")
        shape[i] = shape[i] // before * after
    return tuple(shape)


def check_blocks(name: str, shape: tuple[int, ...], dtype: GGMLType) -> None:
    block, _ = gguf.GGML_QUANT_SIZES[dtype]
    if shape[-1] % block:
        raise UsageError(f"{name} would have rows of {shape[-1]}: {dtype.name} needs {block}s")


def wider_vector(name: str, values: Floats, old: Sizes, new: Sizes) -> Floats:
    """A norm's weights, in the measure of the new width; rotation frequencies as they are."""
    if AXES[kind(name)] != ("embd",):
        return values
    scaled: Floats = values * np.float32(math.sqrt(old.embd / new.embd))
    return np.pad(scaled, (0, new.embd - old.embd))


def wider_matrix(values: Floats, shape: tuple[int, ...], dtype: GGMLType) -> NDArray[Any]:
    """The matrix in the upper left corner of a larger one of zeros, quantized."""
    rows, columns = shape
    chunks: list[NDArray[Any]] = []
    for start in range(0, rows, CHUNK_ROWS):
        chunk = np.zeros((min(CHUNK_ROWS, rows - start), columns), np.float32)
        part = values[start : start + CHUNK_ROWS]
        chunk[: len(part), : part.shape[1]] = part
        chunks.append(gguf.quants.quantize(chunk, dtype))
    return np.concatenate(chunks)


def weights(tensor: Any) -> Floats:
    """A tensor in single precision, rows first."""
    values: Floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return values.reshape([int(size) for size in reversed(tensor.shape)])


def normal(name: str, shape: tuple[int, ...], seed: int) -> Floats:
    """Standard normal noise, its own for each tensor: no order or number of them matters."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return rng.standard_normal(shape, dtype=np.float32)


def kind(name: str) -> str:
    """What a tensor is for: its name without the number of the layer."""
    return name.split(".", 2)[-1] if name.startswith("blk.") else name


def value(reader: Any, key: str, default: Any = None) -> Any:
    field = reader.fields.get(key)
    return default if field is None else field.contents()


if __name__ == "__main__":
    main()
