"""A look at a GGUF file's header, so that a wrong file is named before llama.cpp loads it.

Uses llama.cpp's own parser (`gguf_*`, in the library that llama_cpp has mapped), which is fast and
hardened against damage; the bindings do not expose it, so the few functions are declared here.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llama_cpp.llama_cpp import _lib

from spec_cpu.errors import ModelError, UsageError
from spec_cpu.llama import log

_MAGIC = b"GGUF"
_STRING = 8  # GGUF_TYPE_STRING
_PROJECTOR = "a multimodal projector"
_ENCODER = "an encoder, which makes embeddings of text"
_SPEECH = "a part of a speech synthesizer"
_NOT_MODELS = {"adapter": "a LoRA adapter", "mmproj": _PROJECTOR, "imatrix": "an importance matrix"}
_WRITE_NOTHING = {
    "clip": _PROJECTOR,
    **dict.fromkeys(("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert"), _ENCODER),
    **dict.fromkeys(("jina-bert-v2", "jina-bert-v3", "eurobert", "t5encoder"), _ENCODER),
    **dict.fromkeys(("gemma-embedding", "llama-embed"), _ENCODER),
    **dict.fromkeys(("wavtokenizer-dec", "qwen3tts", "pockettts"), _SPEECH),
}
"""Architectures that llama.cpp loads though they write no text: what their files are."""
_DRAFTS = {
    "eagle3": "an EAGLE-3 draft",
    "dflash": "a DFlash draft",
    "gemma4-assistant": "an assistant draft of Gemma 4",
}
"""Architectures that run only within the context of the model that they were made for: alone, or
beside another model, they may end the process."""


class InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def declare(name: str, result: object, *arguments: object) -> ctypes._NamedFuncPointer:
    """A function of llama.cpp's libraries that the bindings leave out."""
    function: ctypes._NamedFuncPointer = getattr(_lib, name)
    function.restype = result  # type: ignore[assignment]
    function.argtypes = list(arguments)  # type: ignore[arg-type]
    return function


_init = declare("gguf_init_from_file", ctypes.c_void_p, ctypes.c_char_p, InitParams)
_free = declare("gguf_free", None, ctypes.c_void_p)
_find = declare("gguf_find_key", ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p)
_kind = declare("gguf_get_kv_type", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_string = declare("gguf_get_val_str", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
_n_tensors = declare("gguf_get_n_tensors", ctypes.c_int64, ctypes.c_void_p)
_name = declare("gguf_get_tensor_name", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
_data = declare("gguf_get_data_offset", ctypes.c_size_t, ctypes.c_void_p)
_offset = declare("gguf_get_tensor_offset", ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64)
_size = declare("gguf_get_tensor_size", ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64)


def check_model_file(path: Path) -> None:
    """Raise if `path` cannot be a language model; read the header only.

    Raises:
        UsageError: no such file, or a directory.
        ModelError: unreadable, empty, not a GGUF, damaged, truncated, or another kind of GGUF.
    """
    with header_of(path) as header:
        architecture = _value(header, b"general.architecture")
        kind = _NOT_MODELS.get(_value(header, b"general.type")) or _WRITE_NOTHING.get(architecture)
        if kind:
            raise ModelError(f"{path} is {kind}, not a language model: give the model's own GGUF")
        draft = (
            "a model's layers for multi-token prediction (MTP)" if _is_only_mtp(header) else None
        )
        draft = _DRAFTS.get(architecture, draft)
        if draft:
            raise ModelError(
                f"{path} is {draft}, which runs only within the model that it was made for: give a "
                "whole language model, or as a draft a head that `spec-cpu train` made"
            )
        _check_complete(path, header)


def _is_only_mtp(header: int) -> bool:
    """Are these only the layers for multi-token prediction, without the model's others?"""
    names = [_name(header, i) for i in range(_n_tensors(header))]
    split = _find(header, b"split.count") >= 0
    return (
        not split
        and any(b".nextn." in name for name in names)
        and not any(name.startswith(b"blk.0.") for name in names)
    )


def _check_readable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"cannot open {path}: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a directory: give the .gguf file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is a pipe or a device: give a .gguf file")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    if not magic:
        raise ModelError(f"{path} is empty: download or copy it again")
    if magic != _MAGIC:
        raise ModelError(f"{path} is not a GGUF file (it does not begin with {_MAGIC.decode()})")


@contextmanager
def header_of(path: Path) -> Iterator[int]:
    """The parsed header of a file: the handle that `gguf_*` functions take.

    Raises:
        UsageError, ModelError: as for `check_model_file`, damage to the header included.
    """
    _check_readable(path)
    log.forget_errors()
    header = _init(os.fsencode(path), InitParams(no_alloc=True, ctx=None))
    if not header:
        cause = log.last_error() or "the header does not parse"
        raise ModelError(
            f"{path} is damaged or not whole (llama.cpp: {cause}): download or copy it again"
        )
    try:
        yield header
    finally:
        _free(header)


def _value(header: int, key: bytes) -> str:
    index = _find(header, key)
    if index < 0 or _kind(header, index) != _STRING:
        return ""
    return str(_string(header, index).decode("utf-8", "replace"))


def _check_complete(path: Path, header: int) -> None:
    start = _data(header)
    ends = [start + _offset(header, i) + _size(header, i) for i in range(_n_tensors(header))]
    needed, there = max(ends, default=start), path.stat().st_size
    if there < needed:
        raise ModelError(
            f"{path} is truncated: {there:,} of {needed:,} bytes: download or copy it again"
        )
