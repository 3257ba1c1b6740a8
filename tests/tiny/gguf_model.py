"""A GGUF file in the making: what the families have in common."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from tiny.tokens import BOS, UNK, token_type

DType = Literal["F32", "F16", "Q4_0"]

_FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}
EPS = 1e-5
EMBEDDING_STD = 0.25  # small, so that the text before the last token counts


class GGUFModel:
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
        self.header.add_layer_norm_rms_eps(EPS)

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
                    gguf.TokenType.USER_DEFINED if token in user_defined else token_type(token)
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
