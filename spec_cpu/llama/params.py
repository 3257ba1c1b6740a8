"""How llama.cpp is asked to load a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache

import llama_cpp


def model_params() -> llama_cpp.llama_model_params:
    """llama.cpp's defaults for a model on the CPU, without what would end the process."""
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    params.use_extra_bufts = not uses_amx()
    return params


@cache
def uses_amx() -> bool:
    """Would llama.cpp multiply with AMX tiles here?

    Built by GCC 12 that ends the process at the first pass over two tokens: the compiler takes
    `_tile_loadconfig` to read 8 of the 64 bytes that it reads, and drops the shapes of the tiles.
    Which compiler it was cannot be told, so AMX is never used. Weights then stay as they are in the
    file, and our own kernels, which pack them better, gain all the more.
    """
    return b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info()


@contextlib.contextmanager
def safe_defaults() -> Iterator[None]:
    """Let others that load a model meanwhile, through llama_cpp's own classes, do so safely."""
    # The package's own name for the function, which `model_params` calls, stays as it is.
    module = llama_cpp.llama_cpp
    default = module.llama_model_default_params
    module.llama_model_default_params = model_params
    try:
        yield
    finally:
        module.llama_model_default_params = default
