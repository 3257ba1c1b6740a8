"""The gemma3 family: sliding windows."""

from __future__ import annotations

from pathlib import Path

from tiny.gguf_model import DType, GGUFModel
from tiny.tokens import EOS, vocabulary


def write_gemma3_swa(
    path: Path,
    *,
    seed: int = 0,
    n_vocab: int = 32,
    n_embd: int = 32,
    n_layer: int = 4,
    n_head: int = 2,
    n_head_kv: int = 1,
    n_embd_head: int | None = None,
    n_ff: int = 64,
    n_ctx: int = 256,
    window: int = 16,
    pattern: int = 2,
    dtype: DType = "F32",
    scale: float = 1.0,
    noise: float = 0.0,
    noise_seed: int = 1,
    eos: int = EOS,
) -> Path:
    """Write a gemma3 model: every `pattern`-th layer sees all the text, the others a `window`.

    `n_embd_head`: the width of a head, which need not be a share of `n_embd`, as it is by default.
    """
    n_embd_head = n_embd_head or n_embd // n_head
    model = GGUFModel("gemma3", seed=seed, dtype=dtype, noise=noise, noise_seed=noise_seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    model.attention(n_head=n_head, n_head_kv=n_head_kv, n_embd_head=n_embd_head, n_ff=n_ff)
    model.header.add_sliding_window(window)
    model.header.add_sliding_window_pattern(pattern)
    model.header.add_rope_freq_base(1e6)
    model.sentencepiece(vocabulary(n_vocab, eos=eos), eos=eos)
    # The graph multiplies the embeddings by sqrt(n_embd).
    model.ends(n_vocab, n_embd, scale=scale, embedding_std=n_embd**-0.5)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        for name in ("attn_norm", "post_attention_norm", "post_ffw_norm"):
            model.ones(f"{block}.{name}.weight", n_embd)
        for name in ("attn_q_norm", "attn_k_norm"):
            model.ones(f"{block}.{name}.weight", n_embd_head)
        model.matrix(f"{block}.attn_q.weight", n_head * n_embd_head, n_embd)
        model.matrix(f"{block}.attn_k.weight", n_head_kv * n_embd_head, n_embd)
        model.matrix(f"{block}.attn_v.weight", n_head_kv * n_embd_head, n_embd)
        model.matrix(f"{block}.attn_output.weight", n_embd, n_head * n_embd_head)
        model.feed_forward(block, n_embd, n_ff)
    return model.write(path)
