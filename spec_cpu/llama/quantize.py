"""Quantizing a GGUF to another format, and the names of the formats."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import llama_cpp

from spec_cpu.errors import ModelError, UsageError
from spec_cpu.llama import log
from spec_cpu.llama.gguf import check_model_file

_PREFIX = "LLAMA_FTYPE_MOSTLY_"
FORMATS: dict[str, int] = {
    name.removeprefix(_PREFIX): getattr(llama_cpp, name)
    for name in dir(llama_cpp)
    if name.startswith(_PREFIX)
} | {"F32": llama_cpp.LLAMA_FTYPE_ALL_F32}
"""llama.cpp's file types by name: `Q4_0`, `Q4_K_M`, `F16`, ..."""


def quantize(source: Path, destination: Path, type_name: str) -> None:
    """Write `source` to `destination` in the format `type_name`, every matrix in the same one.

    Quantizing what is already quantized is allowed: it loses a little more, which for a draft
    costs acceptance and never correctness.

    Raises:
        UsageError: an unknown format, or `source` is no file.
        ModelError: llama.cpp could not do it; its last error line is in the message.
    """
    if type_name not in FORMATS:
        raise UsageError(f"no format named {type_name}: one of {', '.join(sorted(FORMATS))}")
    check_model_file(source)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FORMATS[type_name]
    params.allow_requantize = True
    params.pure = True
    log.forget_errors()
    failed = llama_cpp.llama_model_quantize(
        os.fsencode(source), os.fsencode(destination), ctypes.byref(params)
    )
    if failed:
        cause = log.last_error() or "llama.cpp gave no reason"
        raise ModelError(f"cannot quantize {source} to {type_name}: {cause}")
