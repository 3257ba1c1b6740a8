"""Medusa heads as a file: see `container`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spec_cpu.heads.container import (
    MEDUSA,
    OUTPUT_NORM,
    Floats,
    Ids,
    Label,
    Sizes,
    damaged,
    numbers,
    read_label,
    rows_in_8_bits,
    written,
)
from spec_cpu.heads.identity import HeadTarget
from spec_cpu.llama.tensors import GgufFile

_IDLE = 2  # the width of all that llama.cpp's block has and nothing comes of
_CONTEXT = 32


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """K heads on one feature, each a residual block; they share an output.

    Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
    Heads". With x = `scale` * f_i, where f_i is the target's hidden state after its last norm that
    the token t_{i+1} was drawn from, head m = 1 .. K foretells t_{i+1+m} by
    `output @ norm(x + silu(blocks[m - 1] @ x + bias[m - 1]))`, norm being the RMS norm with the
    weights `output_norm`.

    Float32 arrays; n is the width of heads and target.

    Attributes:
        tokens: int32, (V,): the target's id of each output, all different.
        scale, output_norm: (n,).
        blocks: (K, n, n). bias: (K, n).
        output: (V, n).
        norm_eps: of the norm.
        accuracy: (K, R): the chance that head m's r-th likeliest token is right if the tokens
            before it are.
    """

    tokens: Ids
    scale: Floats
    blocks: Floats
    bias: Floats
    output: Floats
    output_norm: Floats
    norm_eps: float
    accuracy: Floats

    def __post_init__(self) -> None:
        n, k, v = len(self.scale), len(self.bias), len(self.tokens)
        shapes = {
            "tokens": (v,),
            "blocks": (k, n, n),
            "bias": (k, n),
            "output": (v, n),
            "output_norm": (n,),
            "accuracy": (k, self.accuracy.shape[-1]),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} is {getattr(self, name).shape}, not {shape}")
        if len(set(self.tokens.tolist())) != v:
            raise ValueError("a token has two outputs")


def write_medusa(
    path: Path,
    weights: MedusaWeights,
    target: HeadTarget,
    *,
    quantization: str = "Q8_0",
    acceptance: Sequence[float] = (),
    card: str = "",
) -> None:
    """Write heads. Needs the package `gguf` (the extra "train").

    llama.cpp's part of it is the norm and the output: nothing comes of its block. The heads' own
    blocks are in keys, in 8 bits with a scale for each row.

    Args:
        quantization: of the output; one of `QUANTIZATIONS`.
        acceptance, card: see `Label`.

    Raises:
        UsageError: an unknown quantization.
        ValueError: the width is not that of `target`, or a token is none of its.
    """
    n = len(weights.scale)
    if n != target.n_embd:
        raise ValueError(f"the heads' width is {n}, the target's {target.n_embd}")
    sizes = Sizes(
        n_ff=_IDLE,
        n_head=1,
        n_head_kv=1,
        n_embd_head=_IDLE,
        rope_base=1e4,
        norm_eps=weights.norm_eps,
        n_ctx=_CONTEXT,
    )
    label = Label(MEDUSA, target, weights.tokens, acceptance, card)
    with written(path, label, sizes, quantization) as head:
        head.array("scale", weights.scale)
        head.in_8_bits("blocks", weights.blocks.reshape(-1, n))
        head.array("block_bias", weights.bias.ravel())
        head.array("accuracy", weights.accuracy.ravel())
        head.output(weights.output)
        head.exact(OUTPUT_NORM, weights.output_norm)
        for name in ("attn_norm", "ffn_norm"):
            head.exact(f"blk.0.{name}.weight", np.ones(n, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"):
            head.exact(f"blk.0.{name}.weight", np.zeros((_IDLE, n), np.float32))
        for name in ("attn_output", "ffn_down"):
            head.exact(f"blk.0.{name}.weight", np.zeros((n, _IDLE), np.float32))


@dataclass(frozen=True, slots=True)
class MedusaHead:
    """What their file says beside what llama.cpp runs. See `MedusaWeights`.

    Attributes:
        scale: float32, (n,).
        blocks: float32, (K * n, n), one head's rows after the other's. bias: float32, (K * n,).
        accuracy: float32, (K, R).
    """

    path: Path
    label: Label
    scale: Floats
    blocks: Floats
    bias: Floats
    accuracy: Floats


def read_medusa(file: GgufFile) -> MedusaHead:
    """Raises ModelError: no head, a later version, or damaged."""
    label = read_label(file)
    n = label.target.n_embd
    bias = numbers(file, "block_bias", np.float32)
    rows = len(bias)
    accuracy = numbers(file, "accuracy", np.float32)
    if rows % n or len(accuracy) % (rows // n):
        raise damaged(file.path, "its heads do not fit its target")
    return MedusaHead(
        path=file.path,
        label=label,
        scale=numbers(file, "scale", np.float32, n),
        blocks=rows_in_8_bits(file, "blocks", rows, n),
        bias=bias,
        accuracy=accuracy.reshape(rows // n, -1),
    )
