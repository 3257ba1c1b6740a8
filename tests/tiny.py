"""Tiny random GGUF models, written in a few milliseconds, and ways to damage them.

The same arguments give the same bytes. Every tensor has a random stream of its own, named by the
seed and the tensor's name, and rows are drawn in order: a model with more layers, or with rows of
padding, agrees with the smaller one wherever both have weights.

Vocabularies are SentencePiece ones ("llama"), except for bert. From `BYTE_LEVEL` tokens on there
are tokens for all 256 bytes, and any text can be tokenized. Smaller ones know only their own
characters: tokenizing anything else throws a C++ exception out of llama_tokenize, which ends the
process. The same goes for a space where there is no "▁" token, and llama.cpp puts a space in front
of any text; see `alphabet` for the text that a default vocabulary can take.
"""

from __future__ import annotations

import string
import struct
import zlib
from collections.abc import Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Literal, get_args

import gguf
import numpy as np
from numpy.typing import NDArray

DType = Literal["F32", "F16", "Q4_0"]
Damage = Literal["magic", "header", "metadata", "tensor-info", "tensor-data"]

UNK, BOS, EOS = 0, 1, 2
SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
BYTE_LEVEL = len(SPECIAL) + len(BYTES) + 1
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}
_EPS = 1e-5
_EMBEDDING_STD = 0.25  # small, so that the text before the last token counts


def vocabulary(n_vocab: int, *, eos: int = EOS) -> list[str]:
    """The default tokens: special ones, bytes if there is room for all, characters, pairs, triples.

    `eos` is where "</s>" stands. With `eos` 0 or 1 there is none, and <unk> or <s> plays its part:
    llama.cpp does not let a SentencePiece vocabulary go without an end-of-sequence token.
    """
    letters = string.ascii_lowercase
    characters = "▁" + letters + string.digits + string.punctuation + string.ascii_uppercase
    words = chain(
        BYTES if n_vocab >= BYTE_LEVEL else (),
        characters,
        map("".join, product("etaoin▁", letters)),
        map("".join, product(("▁t", "▁a", "th", "in"), letters)),
    )
    special = SPECIAL if eos >= len(SPECIAL) - 1 else SPECIAL[:-1]
    tokens = [*special[:2], *islice(words, max(0, n_vocab - len(special)))]
    if len(special) == len(SPECIAL):
        tokens.insert(eos, special[EOS])
    if len(tokens) != n_vocab or not 0 <= eos < n_vocab:
        raise ValueError(f"no default vocabulary of {n_vocab} tokens with eos {eos}")
    return tokens


def alphabet(n_vocab: int, *, eos: int = EOS) -> str:
    """The characters that text for the default vocabulary may be made of (ASCII ones, if many)."""
    if n_vocab >= BYTE_LEVEL:
        return string.printable
    single = (token for token in vocabulary(n_vocab, eos=eos) if len(token) == 1)
    return "".join(single).replace("▁", " ")


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
    model = _Model(
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
    model.ends(len(names) + n_pad, n_embd, scale=scale, embedding_std=_EMBEDDING_STD)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", n_embd)
        for name in ("attn_q", "attn_k"):  # larger, for attention that picks some of the tokens
            model.matrix(f"{block}.{name}.weight", n_embd, n_embd, std=2 * n_embd**-0.5)
        for name in ("attn_v", "attn_output"):
            model.matrix(f"{block}.{name}.weight", n_embd, n_embd)
        model.feed_forward(block, n_embd, n_ff)
    return model.write(path, split=split)


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
    model = _Model("qwen2", seed=seed, dtype=dtype, noise=noise, noise_seed=noise_seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    model.attention(n_head=n_head, n_head_kv=n_head_kv, n_embd_head=n_embd // n_head, n_ff=n_ff)
    model.sentencepiece(vocabulary(n_vocab, eos=eos), eos=eos)
    model.ends(n_vocab, n_embd, scale=scale, embedding_std=_EMBEDDING_STD)
    for layer in range(n_layer):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", n_embd)
        for name, rows in (("attn_q", n_embd), ("attn_k", kv), ("attn_v", kv)):
            model.matrix(f"{block}.{name}.weight", rows, n_embd)
            model.bias(f"{block}.{name}.bias", rows)
        model.matrix(f"{block}.attn_output.weight", n_embd, n_embd)
        model.feed_forward(block, n_embd, n_ff)
    return model.write(path)


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
    model = _Model("gemma3", seed=seed, dtype=dtype, noise=noise, noise_seed=noise_seed)
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
    model = _Model("mamba", seed=seed, noise=noise, noise_seed=noise_seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    model.header.add_feed_forward_length(0)
    model.header.add_head_count(0)
    model.header.add_layer_norm_rms_eps(_EPS)
    model.header.add_ssm_conv_kernel(d_conv)
    model.header.add_ssm_inner_size(d_inner)
    model.header.add_ssm_state_size(d_state)
    model.header.add_ssm_time_step_rank(dt_rank)
    model.sentencepiece(vocabulary(n_vocab, eos=eos), eos=eos)
    model.ends(n_vocab, n_embd, scale=scale, embedding_std=_EMBEDDING_STD)
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
    model = _Model("bert", seed=seed)
    model.common(n_embd=n_embd, n_layer=n_layer, n_ctx=n_ctx)
    header = model.header
    header.add_feed_forward_length(n_ff)
    header.add_head_count(n_head)
    header.add_layer_norm_eps(_EPS)
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


def write_adapter(path: Path, *, seed: int = 0, n_embd: int = 32, rank: int = 2) -> Path:
    """Write a LoRA adapter for `write_llama`: a valid GGUF file that is no model."""
    model = _Model("llama", seed=seed, kind="adapter")
    model.header.add_string("adapter.type", "lora")
    model.header.add_float32("adapter.lora.alpha", float(rank))
    model.matrix("blk.0.attn_q.weight.lora_a", rank, n_embd)
    model.matrix("blk.0.attn_q.weight.lora_b", n_embd, rank)
    return model.write(path)


def write_projector(path: Path, *, seed: int = 0, n_embd: int = 32) -> Path:
    """Write a multimodal projector ("mmproj"): a valid GGUF file that is no language model."""
    model = _Model("clip", seed=seed, kind="mmproj")
    model.header.add_bool("clip.has_vision_encoder", True)
    model.header.add_string("clip.projector_type", "mlp")
    model.header.add_uint32("clip.vision.embedding_length", n_embd)
    model.header.add_uint32("clip.vision.block_count", 1)
    model.matrix("mm.0.weight", n_embd, n_embd)
    return model.write(path)


def write_bare(
    path: Path, architecture: str, tensors: Sequence[str] = (), *, mute: bool = False
) -> Path:
    """Write a file that names an architecture, and has little besides; `mute`: no vocabulary."""
    model = _Model(architecture, seed=0)
    model.common(n_embd=32, n_layer=1, n_ctx=64)
    if mute:
        model.header.add_tokenizer_model("none")
    else:
        model.sentencepiece(vocabulary(32), eos=EOS)
    for name in ("token_embd.weight", *tensors):
        model.matrix(name, 32, 32)
    return model.write(path)


def truncate(path: Path, out: Path, fraction: float) -> Path:
    """Copy the first `fraction` of a file, as a download that broke off leaves it."""
    data = path.read_bytes()
    out.write_bytes(data[: int(len(data) * fraction)])
    return out


def corrupt(path: Path, out: Path, what: Damage) -> Path:
    """Copy a GGUF file with damage to one part of it.

    - "magic": other first four bytes;
    - "header": a count of metadata entries beyond all reason;
    - "metadata": a value of a type that does not exist;
    - "tensor-info": a tensor of a type that does not exist;
    - "tensor-data": NaN at the start of the last matrix, which makes every logit NaN. llama.cpp
      loads this, and decodes with it, unless told to check tensors.
    """
    data = bytearray(path.read_bytes())
    reader = gguf.GGUFReader(path)
    match what:
        case "magic":
            data[:4] = b"LMGG"
        case "header":
            struct.pack_into("<Q", data, 16, 1 << 40)
        case "metadata":
            field = reader.fields["general.architecture"]
            # A field begins with the length of its key, and the key; then comes the type.
            struct.pack_into("<I", data, field.offset + 8 + len(field.name), 99)
        case "tensor-info":
            tensor = reader.tensors[0]
            # After the name come the number of dimensions and the dimensions; then the type.
            offset = tensor.field.offset + 8 + len(tensor.name) + 4 + 8 * len(tensor.shape)
            struct.pack_into("<I", data, offset, 999)
        case "tensor-data":
            tensor = [tensor for tensor in reader.tensors if len(tensor.shape) > 1][-1]
            # NaN as F32, as F16, and as the scale of a Q4_0 block.
            data[tensor.data_offset : tensor.data_offset + 32] = b"\xff\x7f" * 16
        case _:
            raise ValueError(f"{what!r} is none of {get_args(Damage)}")
    out.write_bytes(data)
    return out


class _Model:
    """A GGUF file in the making: `header` is gguf's writer, tensors are kept until `write`."""

    def __init__(
        self,
        architecture: str,
        *,
        seed: int,
        kind: str = "model",
        dtype: DType = "F32",
        noise: float = 0.0,
        noise_seed: int = 1,
        name: str | None = None,
    ) -> None:
        self.header: Any = gguf.GGUFWriter(None, architecture)
        self.header.add_type(kind)
        self.header.add_name(name or f"tiny {architecture} {kind}")
        self.header.add_file_type(_FILE_TYPES[dtype])
        self._seed = seed
        self._type = gguf.GGMLQuantizationType[dtype]
        self._noise = noise
        self._noise_seed = noise_seed
        self._tensors: dict[str, tuple[NDArray[Any], Any]] = {}

    def common(self, *, n_embd: int, n_layer: int, n_ctx: int) -> None:
        """The sizes that every architecture has."""
        self.header.add_context_length(n_ctx)
        self.header.add_embedding_length(n_embd)
        self.header.add_block_count(n_layer)

    def attention(self, *, n_head: int, n_head_kv: int, n_embd_head: int, n_ff: int) -> None:
        """The sizes of a decoder with attention, rotary positions and RMS norms."""
        self.header.add_feed_forward_length(n_ff)
        self.header.add_head_count(n_head)
        self.header.add_head_count_kv(n_head_kv)
        self.header.add_key_length(n_embd_head)
        self.header.add_value_length(n_embd_head)
        self.header.add_rope_dimension_count(n_embd_head)
        self.header.add_layer_norm_rms_eps(_EPS)

    def sentencepiece(
        self,
        tokens: Sequence[str],
        *,
        eos: int,
        n_pad: int = 0,
        user_defined: Sequence[str] = (),
        chat_template: str | None = None,
        add_bos: bool = True,
        add_eos: bool = False,
    ) -> None:
        """A SentencePiece vocabulary; earlier tokens merge before later ones."""
        padding = [f"<pad{i}>" for i in range(n_pad)]
        self.header.add_tokenizer_model("llama")
        self.header.add_token_list([*tokens, *padding])
        self.header.add_token_scores([-float(i) for i in range(len(tokens) + n_pad)])
        self.header.add_token_types(
            [
                *(
                    gguf.TokenType.USER_DEFINED if token in user_defined else _token_type(token)
                    for token in tokens
                ),
                *[gguf.TokenType.UNUSED] * len(padding),
            ]
        )
        self.header.add_unk_token_id(UNK)
        self.header.add_bos_token_id(BOS)
        self.header.add_eos_token_id(eos)
        self.header.add_add_bos_token(add_bos)
        self.header.add_add_eos_token(add_eos)
        if chat_template is not None:
            self.header.add_chat_template(chat_template)

    def ends(self, n_vocab: int, n_embd: int, *, scale: float, embedding_std: float) -> None:
        """The tensors before the first layer and after the last."""
        self.matrix("token_embd.weight", n_vocab, n_embd, std=embedding_std)
        self.ones("output_norm.weight", n_embd)
        self.matrix("output.weight", n_vocab, n_embd, std=scale * n_embd**-0.5)

    def feed_forward(self, block: str, n_embd: int, n_ff: int) -> None:
        """The gated feed-forward part of a layer, with its norm."""
        self.ones(f"{block}.ffn_norm.weight", n_embd)
        self.matrix(f"{block}.ffn_gate.weight", n_ff, n_embd)
        self.matrix(f"{block}.ffn_up.weight", n_ff, n_embd)
        self.matrix(f"{block}.ffn_down.weight", n_embd, n_ff)

    def matrix(self, name: str, rows: int, columns: int, *, std: float | None = None) -> None:
        """A random matrix, quantized; by default its output is about as large as its input."""
        key = zlib.crc32(name.encode())
        values = np.random.default_rng([self._seed, key]).standard_normal((rows, columns))
        if self._noise:
            rng = np.random.default_rng([self._seed, key, self._noise_seed])
            values += self._noise * rng.standard_normal((rows, columns))
        values *= columns**-0.5 if std is None else std
        single = values.astype(np.float32)
        self._tensors[name] = (gguf.quants.quantize(single, self._type), self._type)

    def bias(self, name: str, n: int) -> None:
        """Random numbers of about the size of a matrix's output, without the noise of relatives."""
        rng = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        self.add(name, rng.standard_normal(n).astype(np.float32))

    def ones(self, name: str, n: int) -> None:
        self.add(name, np.ones(n, np.float32))

    def zeros(self, name: str, n: int) -> None:
        self.add(name, np.zeros(n, np.float32))

    def add(self, name: str, values: NDArray[np.float32]) -> None:
        """A tensor that stays in single precision."""
        self._tensors[name] = (values, gguf.GGMLQuantizationType.F32)

    def write(self, path: Path, *, split: bool = False) -> Path:
        """Write the file, or two; return the one to load."""
        writer = self.header
        if split:
            writer.split_max_tensors = -(-len(self._tensors) // 2)
        for name, (values, dtype) in self._tensors.items():
            writer.add_tensor(name, values, raw_dtype=dtype)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        first: Path = writer.format_shard_names(path)[0]
        return first


def _token_type(token: str) -> gguf.TokenType:
    if token == SPECIAL[UNK]:
        return gguf.TokenType.UNKNOWN
    if token in BYTES:
        return gguf.TokenType.BYTE
    if len(token) > 2 and token.startswith("<") and token.endswith(">"):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.NORMAL
