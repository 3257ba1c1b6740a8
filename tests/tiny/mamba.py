"""The mamba family: recurrent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tiny.gguf_model import EMBEDDING_STD, EPS, GGUFModel
from tiny.tokens import EOS, vocabulary


def write_mamba(
    path: Path,
    *,
    seed: int = 0,
    n_vocab: int = 32,
    n_embd: int = 32,
    n_layer: int = 1,
    n_ctx: int = 256,
    d_conv: int = 4,
    d_state: int = 8,
    dt_rank: int = 4,
    scale: float = 1.0,
    noise: float = 0.0,
    noise_seed: int = 1,
    eos: int = EOS,
) -> Path:
    """Write a mamba model: recurrent, so its memory cannot be cut back to any earlier position."""
    d_inner = 2 * n_embd  # llama.cpp supports no other
    model = GGUFModel("mamba", seed=seed, noise=noise, noise_seed=noise_seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    model.header.add_feed_forward_length(0)
    model.header.add_head_count(0)
    model.header.add_layer_norm_rms_eps(EPS)
    model.header.add_ssm_conv_kernel(d_conv)
    model.header.add_ssm_inner_size(d_inner)
    model.header.add_ssm_state_size(d_state)
    model.header.add_ssm_time_step_rank(dt_rank)
    model.sentencepiece(vocabulary(n_vocab, eos=eos), eos=eos)
    model.ends(n_vocab, n_embd, scale=scale, embedding_std=EMBEDDING_STD)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", n_embd)
        model.matrix(f"{block}.ssm_in.weight", 2 * d_inner, n_embd)
        model.matrix(f"{block}.ssm_conv1d.weight", d_inner, d_conv)
        model.zeros(f"{block}.ssm_conv1d.bias", d_inner)
        model.matrix(f"{block}.ssm_x.weight", dt_rank + 2 * d_state, d_inner)
        model.matrix(f"{block}.ssm_dt.weight", d_inner, dt_rank)
        model.add(f"{block}.ssm_dt.bias", np.full(d_inner, -2.0, np.float32))  # slow to forget
        decay = -np.arange(1, d_state + 1, dtype=np.float32)
        model.add(f"{block}.ssm_a", np.tile(decay, (d_inner, 1)))
        model.ones(f"{block}.ssm_d", d_inner)
        model.matrix(f"{block}.ssm_out.weight", n_embd, d_inner)
    return model.write(path)
