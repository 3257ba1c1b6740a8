"""GGUF files that are valid, and no language model that could answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tiny.gguf_model import GGUFModel
from tiny.tokens import EOS, vocabulary


def write_adapter(path: Path, *, seed: int = 0, n_embd: int = 32, rank: int = 2) -> Path:
    """Write a LoRA adapter for `write_llama`: a valid GGUF file that is no model."""
    model = GGUFModel("llama", seed=seed, kind="adapter")
    model.header.add_string("adapter.type", "lora")
    model.header.add_float32("adapter.lora.alpha", float(rank))
    model.matrix("blk.0.attn_q.weight.lora_a", rank, n_embd)
    model.matrix("blk.0.attn_q.weight.lora_b", n_embd, rank)
    return model.write(path)


def write_projector(path: Path, *, seed: int = 0, n_embd: int = 32) -> Path:
    """Write a multimodal projector ("mmproj"): a valid GGUF file that is no language model."""
    model = GGUFModel("clip", seed=seed, kind="mmproj")
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
    model = GGUFModel(architecture, seed=0)
    model.common(n_embd=32, n_layer=1, n_ctx=64)
    if mute:
        model.header.add_tokenizer_model("none")
    else:
        model.sentencepiece(vocabulary(32), eos=EOS)
    for name in ("token_embd.weight", *tensors):
        model.matrix(name, 32, 32)
    return model.write(path)
