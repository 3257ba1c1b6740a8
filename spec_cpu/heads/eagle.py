"""An EAGLE head as a file: see `container`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spec_cpu.heads.container import (
    EAGLE,
    OUTPUT_NORM,
    Floats,
    Ids,
    Label,
    Sizes,
    numbers,
    read_label,
    rows_in_8_bits,
    written,
)
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.tensors import GgufFile


@dataclass(frozen=True, slots=True)
class EagleWeights:
    """An EAGLE head: a transformer block over (feature, embedding of the next token).

    Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty". The input
    at position i is `combine_feature @ (feature_scale * f_i) + combine_embedding @
    (embedding_scale * e(t_{i+1})) + bias`, where f_i is the target's hidden state after its last
    norm and e the target's own embedding; the logits predict t_{i+2}, and the hidden state after
    `output_norm` stands for f_{i+1}.

    Matrices are float32 arrays (outputs, inputs); n is the width of head and target. Queries and
    keys are as llama.cpp's llama models have them: rotation turns adjacent pairs of elements.

    Attributes:
        tokens: int32, (V,): the target's id of each output, all different.
        feature_scale, embedding_scale: (n,): with them all of an input is of the same size, so that
            8 bits are enough.
        combine_feature, combine_embedding: (n, n), in 8 bits in the file. bias: (n,).
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
    feature_scale: Floats
    embedding_scale: Floats
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
            **dict.fromkeys(("feature_scale", "embedding_scale"), (n,)),
            **dict.fromkeys(("output_norm", "attn_norm", "ffn_norm"), (n,)),
            **dict.fromkeys(("combine_feature", "combine_embedding"), (n, n)),
            **dict.fromkeys(("attn_q", "attn_output"), (n, n)),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} is {getattr(self, name).shape}, not {shape}")
        if len(set(self.tokens.tolist())) != v:
            raise ValueError("a token has two outputs")


_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "ffn_norm")
_VECTORS = ("feature_scale", "embedding_scale", "bias")
_COMBINED = ("combine_feature", "combine_embedding")


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

    Outputs are sorted by their token's id: `read_eagle` gives them in that order.

    Args:
        quantization: of the block's matrices and the output; one of `QUANTIZATIONS`.
        acceptance, card: see `Label`.

    Raises:
        UsageError: an unknown quantization.
        ValueError: the width is not that of `target`, or a token is none of its.
    """
    n_embd = len(weights.bias)
    if n_embd != target.n_embd:
        raise ValueError(f"the head's width is {n_embd}, the target's {target.n_embd}")
    sizes = Sizes(
        n_ff=len(weights.ffn_up),
        n_head=weights.n_head,
        n_head_kv=weights.n_head_kv,
        n_embd_head=n_embd // weights.n_head,
        rope_base=weights.rope_base,
        norm_eps=weights.norm_eps,
        n_ctx=weights.n_ctx,
    )
    label = Label(EAGLE, target, weights.tokens, acceptance, card)
    with written(path, label, sizes, quantization) as head:
        for name in _VECTORS:
            head.array(name, getattr(weights, name))
        for name in _COMBINED:
            head.in_8_bits(name, getattr(weights, name))
        head.output(weights.output)
        head.exact(OUTPUT_NORM, weights.output_norm)
        for name in _NORMS:
            head.exact(f"blk.0.{name}.weight", getattr(weights, name))
        for name in _MATRICES:
            head.matrix(f"blk.0.{name}.weight", getattr(weights, name))


@dataclass(frozen=True, slots=True)
class EagleHead:
    """What its file says beside the weights that llama.cpp runs.

    Attributes:
        feature_scale, embedding_scale, bias: float32, (n,). combine_feature, combine_embedding:
            float32, (n, n). See `EagleWeights`.
    """

    path: Path
    label: Label
    feature_scale: Floats
    embedding_scale: Floats
    combine_feature: Floats
    combine_embedding: Floats
    bias: Floats


def read_eagle(file: GgufFile) -> EagleHead:
    """Raises ModelError: no head, a later version, or damaged."""
    label = read_label(file)
    n = label.target.n_embd
    return EagleHead(
        path=file.path,
        label=label,
        **{name: numbers(file, name, np.float32, n) for name in _VECTORS},
        **{name: rows_in_8_bits(file, name, n, n) for name in _COMBINED},
    )
