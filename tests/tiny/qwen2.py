"""The qwen2 family: biases."""

from __future__ import annotations

from pathlib import Path

from tiny.gguf_model import EMBEDDING_STD, DType, GGUFModel
from tiny.tokens import EOS, vocabulary


def write_qwen2(
    path: Path,
    *,
    seed: int = 0,
    n_vocab: int = 32,
    n_embd: int = 32,
    n_layer: int = 1,
    n_head: int = 2,
    n_head_kv: int = 1,
    n_ff: int = 64,
    n_ctx: int = 256,
    dtype: DType = "F32",
    scale: float = 1.0,
    noise: float = 0.0,
    noise_seed: int = 1,
    eos: int = EOS,
) -> Path:
    """Write a qwen2 model: queries, keys and values have biases, as large as what they add to."""
    kv = n_embd // n_head * n_head_kv
    model = GGUFModel("qwen2", seed=seed, dtype=dtype, noise=noise, noise_seed=noise_seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    model.attention(n_head=n_head, n_head_kv=n_head_kv, n_embd_head=n_embd // n_head, n_ff=n_ff)
    model.sentencepiece(vocabulary(n_vocab, eos=eos), eos=eos)
    model.ends(n_vocab, n_embd, scale=scale, embedding_std=EMBEDDING_STD)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", n_embd)
        for name, rows in (("attn_q", n_embd), ("attn_k", kv), ("attn_v", kv)):
            model.matrix(f"{block}.{name}.weight", rows, n_embd)
            model.bias(f"{block}.{name}.bias", rows)
        model.matrix(f"{block}.attn_output.weight", n_embd, n_embd)
        model.feed_forward(block, n_embd, n_ff)
    return model.write(path)
