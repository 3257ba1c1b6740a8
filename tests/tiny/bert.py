"""The bert family: encoders."""

from __future__ import annotations

import string
from pathlib import Path

import gguf

from tiny.gguf_model import EPS, GGUFModel


def write_bert(
    path: Path,
    *,
    seed: int = 0,
    n_embd: int = 32,
    n_layer: int = 1,
    n_head: int = 2,
    n_ff: int = 64,
    n_ctx: int = 64,
) -> Path:
    """Write a bert model: an encoder, which has embeddings to give and no logits."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"▁{letter}" for letter in string.ascii_lowercase] + list(string.ascii_lowercase)
    types = [gguf.TokenType.CONTROL] * len(special) + [gguf.TokenType.NORMAL] * len(words)
    types[1] = gguf.TokenType.UNKNOWN
    model = GGUFModel("bert", seed=seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    header = model.header
    header.add_feed_forward_length(n_ff)
    header.add_head_count(n_head)
    header.add_layer_norm_eps(EPS)
    header.add_causal_attention(False)
    header.add_pooling_type(gguf.PoolingType.MEAN)
    header.add_tokenizer_model("bert")
    header.add_token_type_count(2)
    header.add_token_list(special + words)
    header.add_token_types(types)
    header.add_pad_token_id(0)
    header.add_unk_token_id(1)
    header.add_bos_token_id(2)
    header.add_sep_token_id(3)
    header.add_mask_token_id(4)
    model.matrix("token_embd.weight", len(special + words), n_embd, std=1.0)
    model.matrix("token_types.weight", 2, n_embd, std=1.0)
    model.matrix("position_embd.weight", n_ctx, n_embd, std=1.0)
    model.ones("token_embd_norm.weight", n_embd)
    model.zeros("token_embd_norm.bias", n_embd)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            model.matrix(f"{block}.{name}.weight", n_embd, n_embd)
            model.zeros(f"{block}.{name}.bias", n_embd)
        for name in ("attn_output_norm", "layer_output_norm"):
            model.ones(f"{block}.{name}.weight", n_embd)
            model.zeros(f"{block}.{name}.bias", n_embd)
        model.matrix(f"{block}.ffn_up.weight", n_ff, n_embd)
        model.zeros(f"{block}.ffn_up.bias", n_ff)
        model.matrix(f"{block}.ffn_down.weight", n_embd, n_ff)
        model.zeros(f"{block}.ffn_down.bias", n_embd)
    return model.write(path)
