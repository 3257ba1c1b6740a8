"""Tiny EAGLE heads for the models of `tiny`, written in a few milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from spec_cpu.heads.eagle import EagleWeights, write_eagle
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.model import Model

_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def write_head(
    path: Path,
    target: Path,
    *,
    tokens: Sequence[int] | None = None,
    noise: float = 0.0,
    feature: float = 0.0,
    seed: int = 0,
    **how: Any,
) -> Path:
    """Write a head for a `tiny.write_llama` model of one layer, and return its path.

    It is the target's own layer over the embedding of the next token. So it knows all that the
    target does but the first token of the text: without noise nearly every draft is right.

    Args:
        tokens: that it can draft; default: all.
        noise: added to its matrices, in their standard deviations.
        feature: how much of the target's feature goes into its input.
        how: for `write_eagle`.
    """
    weights = eagle_weights(target, tokens=tokens, noise=noise, feature=feature, seed=seed)
    with Model(target) as model:
        write_eagle(path, weights, HeadTarget.of(model), **how)
    return path


def eagle_weights(
    target: Path,
    *,
    tokens: Sequence[int] | None = None,
    noise: float = 0.0,
    feature: float = 0.0,
    seed: int = 0,
) -> EagleWeights:
    """The weights of `write_head`."""
    reader: Any = gguf.GGUFReader(target)
    rng = np.random.default_rng(seed)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def weights(name: str) -> NDArray[np.float32]:
        tensor = tensors[name]
        shape = [int(size) for size in reversed(tensor.shape)]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if noise and len(shape) == 2:
            values = values + noise * values.std() * rng.standard_normal(shape)
        return values.astype(np.float32)

    def value(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    n = value("embedding_length")
    kept = np.arange(len(weights("output.weight"))) if tokens is None else np.array(tokens)
    mixing = rng.standard_normal((n, n)) * n**-0.5
    return EagleWeights(
        tokens=kept.astype(np.int32),
        feature_scale=np.ones(n, np.float32),
        embedding_scale=np.ones(n, np.float32),
        combine_feature=(feature * mixing).astype(np.float32),
        combine_embedding=np.eye(n, dtype=np.float32),
        bias=np.zeros(n, np.float32),
        output=weights("output.weight")[kept],
        output_norm=weights("output_norm.weight"),
        attn_norm=weights("blk.0.attn_norm.weight"),
        ffn_norm=weights("blk.0.ffn_norm.weight"),
        **{name: weights(f"blk.0.{name}.weight") for name in _MATRICES},
        n_head=value("attention.head_count"),
        n_head_kv=value("attention.head_count_kv"),
        rope_base=1e4,
        norm_eps=value("attention.layer_norm_rms_epsilon"),
        n_ctx=value("context_length"),
    )


def edited(path: Path, out: Path, **changed: object) -> Path:
    """A copy in which head keys have other values; None leaves one out."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        short = key.removeprefix("spec_cpu.head.").replace(".", "_")
        value = changed.get(short, field.contents())
        if value is not None:
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, value, field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
