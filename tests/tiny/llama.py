"""The llama family, in all the ways that a file of it can differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tiny.gguf_model import EMBEDDING_STD, DType, GGUFModel
from tiny.tokens import EOS, vocabulary


def write_llama(
    path: Path,
    *,
    seed: int = 0,
    n_vocab: int = 32,
    n_embd: int = 32,
    n_layer: int = 1,
    n_head: int = 2,
    n_ff: int = 64,
    n_ctx: int = 256,
    dtype: DType = "F32",
    scale: float = 1.0,
    noise: float = 0.0,
    noise_seed: int = 1,
    eos: int = EOS,
    tokens: Sequence[str] | None = None,
    user_defined: Sequence[str] = (),
    chat_template: str | None = None,
    add_bos: bool = True,
    add_eos: bool = False,
    n_pad: int = 0,
    context_length: int | None = None,
    split: bool = False,
    general_name: str | None = None,
    causal: bool = True,
) -> Path:
    """Write a llama model; return the file to load, which is not `path` for a split one.

    - `scale` is about the standard deviation of the logits: 0.3 is flat, 5 is peaked.
    - `noise` makes a relative of the model of the same seed: to each matrix gaussian noise is added
      whose standard deviation is `noise` times that of the matrix. `noise_seed` says which noise.
    - `tokens` replaces the default vocabulary, and `n_vocab` then counts for nothing. They must
      differ from each other: llama.cpp aborts the process on duplicates. Those like `<this>` are
      control tokens, but for the ones in `user_defined`.
    - `add_bos`, `add_eos`: what the model wants around a text.
    - `n_pad` adds tokens of type "unused" at the end, as real models have them. Their rows are as
      random as the others, so that their probability is not zero; the logits of the tokens before
      them are those of the model without padding.
    - `context_length` goes into the header in place of `n_ctx`. No weight depends on either.
    - `general_name`: llama.cpp goes by it in places: marks of "phi-3" swallow the space behind.
    - `causal` False makes an encoder of it.
    - `split` spreads the tensors over two files, <stem>-0000[12]-of-00002.gguf.
    """
    names = list(tokens) if tokens is not None else vocabulary(n_vocab, eos=eos)
    model = GGUFModel(
        "llama", seed=seed, dtype=dtype, noise=noise, noise_seed=noise_seed, name=general_name
    )
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=context_length or n_ctx)
    model.attention(n_head=n_head, n_head_kv=n_head, n_embd_head=n_embd // n_head, n_ff=n_ff)
    model.sentencepiece(
        names,
        eos=eos,
        n_pad=n_pad,
        user_defined=user_defined,
        chat_template=chat_template,
        add_bos=add_bos,
        add_eos=add_eos,
    )
    if not causal:
        model.header.add_causal_attention(False)
    model.ends(len(names) + n_pad, n_embd, scale=scale, embedding_std=EMBEDDING_STD)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", n_embd)
        for name in ("attn_q", "attn_k"):  # larger, for attention that picks some of the tokens
            model.matrix(f"{block}.{name}.weight", n_embd, n_embd, std=2 * n_embd**-0.5)
        for name in ("attn_v", "attn_output"):
            model.matrix(f"{block}.{name}.weight", n_embd, n_embd)
        model.feed_forward(block, n_embd, n_ff)
    return model.write(path, split=split)
