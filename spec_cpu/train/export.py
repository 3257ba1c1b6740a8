"""From trained networks to the heads that llama.cpp runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spec_cpu.heads.eagle import EagleWeights
from spec_cpu.heads.medusa import MedusaWeights
from spec_cpu.train.eagle import EagleNet
from spec_cpu.train.eagle_pupil import Scales
from spec_cpu.train.medusa import MedusaNet


def eagle_weights(
    net: EagleNet, scales: Scales, tokens: NDArray[np.int32], *, n_ctx: int
) -> EagleWeights:
    """The weights of `net` as a head's file has them.

    Queries and keys need no other order: both sides turn neighbouring pairs.

    Args:
        scales: what features and embeddings are divided by in training.
        tokens: (V',) the target's id of each output.
        n_ctx: the longest text that it is meant for.
    """
    shape = net.shape
    kv = shape.n_head_kv * shape.n_rot
    q, k, v = net.attn_qkv.weight.split((shape.n_embd, kv, kv))
    gate, up = net.ffn_gate_up.weight.chunk(2)
    feature, embedding = net.combine.weight.chunk(2, 1)
    return EagleWeights(
        tokens=tokens,
        feature_scale=_array(1.0 / scales.features),
        embedding_scale=_array(1.0 / scales.embeddings),
        combine_feature=_array(feature),
        combine_embedding=_array(embedding),
        bias=_array(net.combine.bias),
        output=_array(net.output.weight),
        output_norm=_array(net.output_norm.weight),
        attn_norm=_array(net.attn_norm.weight),
        attn_q=_array(q),
        attn_k=_array(k),
        attn_v=_array(v),
        attn_output=_array(net.attn_output.weight),
        ffn_norm=_array(net.ffn_norm.weight),
        ffn_gate=_array(gate),
        ffn_up=_array(up),
        ffn_down=_array(net.ffn_down.weight),
        n_head=shape.n_head,
        n_head_kv=shape.n_head_kv,
        rope_base=shape.rope_base,
        norm_eps=shape.epsilon,
        n_ctx=n_ctx,
    )


def medusa_weights(
    net: MedusaNet, spread: Tensor, tokens: NDArray[np.int32], accuracy: Tensor
) -> MedusaWeights:
    """The weights of `net` as the file of its heads has them.

    Args:
        spread: (n_embd,): what features were divided by in training.
        tokens: (V',) the target's id of each output.
        accuracy: (K, R): see `MedusaWeights`.
    """
    shape = net.shape
    return MedusaWeights(
        tokens=tokens,
        scale=_array(1.0 / spread),
        blocks=_array(net.blocks.weight).reshape(shape.heads, shape.n_embd, shape.n_embd),
        bias=_array(net.blocks.bias).reshape(shape.heads, shape.n_embd),
        output=_array(net.output.weight),
        output_norm=_array(net.output_norm.weight),
        norm_eps=shape.epsilon,
        accuracy=_array(accuracy),
    )


def _array(weights: Tensor) -> NDArray[np.float32]:
    copied: NDArray[np.float32] = weights.detach().numpy().astype(np.float32)
    return copied
