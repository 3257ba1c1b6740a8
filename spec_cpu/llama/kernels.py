"""The verify kernels inside llama.cpp: loaded once a process, offered every new model's weights."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import llama_cpp  # noqa: F401 (maps the libraries that the kernels join)
import numpy as np
from numpy.typing import NDArray

from spec_cpu.errors import KernelsError
from spec_cpu.llama import log  # noqa: F401 (keeps what llama.cpp says off the terminal)
from spec_cpu.llama.row_ops import NativeRowOps

Rows = NDArray[np.float32]

_MESSAGE_BYTES = 256
_TESTED = "0.3.36"  # of llama-cpp-python, as pinned in pyproject.toml
_loading = Lock()
_loaded: dict[str, ctypes.CDLL] = {}  # by the build's name; llama.cpp keeps a backend for good
_faults: dict[str, dict[str, str | None]] = {}  # likewise


class UnusableLibraryError(KernelsError):
    """The file cannot be opened, or is not a library of kernels."""


def load_kernels(library: Path) -> str:
    """Check `library` on this processor and make it a backend of llama.cpp; a second call is free.

    Models loaded outside `accepting` do not use it.

    Returns:
        The instructions that it was built for.

    Raises:
        UnusableLibraryError: it cannot be opened.
        KernelsError: it multiplies every format wrongly, is not for this llama.cpp, or another
            build was loaded before.
    """
    name = library.parent.name
    with _loading:  # checks and registration are for one thread
        if name not in _loaded:
            kernels = _open(library)
            check_layouts(kernels)
            faults = check_formats(kernels)
            if _loaded:
                raise KernelsError("another build of the kernels is loaded here: start anew")
            _register(library)
            _loaded[name] = kernels
            _faults[name] = faults
    return bytes(_loaded[name].spec_cpu_isa()).decode()


def formats(library: Path) -> dict[str, str | None]:
    """The formats of weights that `library`, which was loaded, has a kernel for.

    Returns:
        For each what is wrong with its kernel, and llama.cpp's is used; None: nothing is.
    """
    return _faults[library.parent.name]


def row_ops(library: Path) -> NativeRowOps:
    """What `library`, which was loaded, does with rows of logits."""
    return NativeRowOps(_loaded[library.parent.name])


@contextmanager
def accepting(library: Path | None, threads: int | None = None) -> Iterator[None]:
    """Inside, models that are loaded get their weights packed for `library`; None: for none.

    Args:
        threads: that pack them; default: as many as OpenMP is set to.
    """
    kernels = None if library is None else _loaded[library.parent.name]
    with _loading:  # the switch is the process's: another thread must not load a model meanwhile
        if kernels:
            kernels.spec_cpu_accept(True)
            usual = kernels.omp_get_max_threads()
            kernels.omp_set_num_threads(threads or usual)
        try:
            yield
        finally:
            if kernels:
                kernels.omp_set_num_threads(usual)
                kernels.spec_cpu_accept(False)


class Matrix:
    """A matrix to multiply rows with outside of llama.cpp's passes.

    With the kernels its weights are kept in 8 bits. Without, or where they have no such size, rows
    are multiplied one at a time: a larger product NumPy would share out to threads of BLAS, which
    then spin for a while on the cores that the next pass needs.
    """

    def __init__(self, weights: Rows, library: Path | None) -> None:
        """Prepare `weights`, (m, n), for the kernels in `library`; None: for NumPy."""
        self._handle: int | None = None
        self._rows, n = weights.shape
        weights = np.ascontiguousarray(weights, np.float32)
        if library is not None:
            self._kernels = _loaded[library.parent.name]
            self._handle = self._kernels.spec_cpu_matrix(weights.ctypes.data, n, self._rows)
        self._weights = None if self._handle else weights

    def __del__(self) -> None:
        if self._handle:
            self._kernels.spec_cpu_matrix_free(self._handle)

    def times(self, rows: Rows) -> Rows:
        """The product of each of `rows`, (r, n): (r, m)."""
        products = np.empty((len(rows), self._rows), np.float32)
        if self._weights is None:
            rows = np.ascontiguousarray(rows, np.float32)
            self._kernels.spec_cpu_matrix_multiply(
                self._handle, rows.ctypes.data, len(rows), products.ctypes.data
            )
        else:
            for product, row in zip(products, rows, strict=True):
                np.dot(self._weights, row, out=product)
        return products


def _open(library: Path) -> ctypes.CDLL:
    try:
        kernels = ctypes.CDLL(str(library))
        _declare(kernels)
    except (OSError, AttributeError) as error:
        raise UnusableLibraryError(
            f"cannot load {library} ({error}): llama.cpp's own code computes; "
            "`spec-cpu kernels build --fresh` makes it anew"
        ) from None
    return kernels


def _declare(kernels: ctypes.CDLL) -> None:
    pointer, size, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    kernels.spec_cpu_accept.argtypes = [ctypes.c_bool]
    kernels.spec_cpu_accept.restype = None
    kernels.omp_set_num_threads.argtypes = [ctypes.c_int]  # of the OpenMP that it is linked with
    kernels.omp_set_num_threads.restype = None
    kernels.omp_get_max_threads.restype = ctypes.c_int
    kernels.spec_cpu_isa.restype = text
    kernels.spec_cpu_check_layouts.argtypes = [text, ctypes.c_size_t]
    kernels.spec_cpu_format.argtypes = [ctypes.c_int]
    kernels.spec_cpu_format.restype = text
    kernels.spec_cpu_self_test.argtypes = [ctypes.c_int, text, ctypes.c_size_t]
    kernels.spec_cpu_matrix.argtypes = [pointer, size, size]
    kernels.spec_cpu_matrix.restype = pointer
    kernels.spec_cpu_matrix_free.argtypes = [pointer]
    kernels.spec_cpu_matrix_free.restype = None
    kernels.spec_cpu_matrix_multiply.argtypes = [pointer, pointer, size, pointer]
    kernels.spec_cpu_matrix_multiply.restype = None


def check_layouts(kernels: ctypes.CDLL) -> None:
    """The kernels read structures that no header of llama.cpp's declares.

    Raises:
        KernelsError: this llama.cpp has others; says which.
    """
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    if kernels.spec_cpu_check_layouts(message, len(message)):
        raise KernelsError(
            f"this llama.cpp has another {message.value.decode()} than the kernels know: "
            f"llama.cpp's own code computes; llama-cpp-python {_TESTED} has theirs"
        )


def check_formats(kernels: ctypes.CDLL) -> dict[str, str | None]:
    """What is wrong with the kernel of each format; the library leaves out one that fails.

    Raises:
        KernelsError: all of them fail.
    """
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    faults: dict[str, str | None] = {}
    while name := kernels.spec_cpu_format(len(faults)):
        failed = kernels.spec_cpu_self_test(len(faults), message, len(message))
        faults[name.decode()] = message.value.decode("utf-8", "replace") if failed else None
    if all(faults.values()):
        why = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise KernelsError(
            f"the kernels failed their self-test ({why}): llama.cpp's own code computes"
        )
    return faults


def _register(library: Path) -> None:
    # By soname: the wheel holds copies of this file, and another one would be another registry.
    ggml = ctypes.CDLL("libggml.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    ggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    if not ggml.ggml_backend_load(os.fsencode(library)):
        raise KernelsError("this llama.cpp does not take the kernels: its own code computes")
