"""What a GGUF file holds: key-values, and rows of its tensors in single precision.

Through ggml's own functions, in the library that llama_cpp has mapped, so that every format it
knows can be read and no other package is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spec_cpu.errors import ModelError
from spec_cpu.llama.gguf import declare, header_of

Rows = NDArray[np.float32]

_ARRAY, _STRING = 9, 8  # GGUF_TYPE_*
_DTYPES: tuple[DTypeLike | None, ...] = (
    np.uint8,
    np.int8,
    np.uint16,
    np.int16,
    np.uint32,
    np.int32,
    np.float32,
    np.bool_,
    None,
    None,
    np.uint64,
    np.int64,
    np.float64,
)  # by GGUF_TYPE_*
_SIZES = 4  # GGML_MAX_DIMS
_F32 = 0  # GGML_TYPE_F32


class _Traits(ctypes.Structure):
    """ggml_type_traits. `to_float` takes blocks, room for floats, and the number of floats."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("blck_size", ctypes.c_int64),
        ("blck_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        (
            "to_float",
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64),
        ),
        ("from_float_ref", ctypes.c_void_p),
    )


_HANDLE, _INDEX = ctypes.c_void_p, ctypes.c_int64
_find_key = declare("gguf_find_key", _INDEX, _HANDLE, ctypes.c_char_p)
_kind = declare("gguf_get_kv_type", ctypes.c_int, _HANDLE, _INDEX)
_item_kind = declare("gguf_get_arr_type", ctypes.c_int, _HANDLE, _INDEX)
_string = declare("gguf_get_val_str", ctypes.c_char_p, _HANDLE, _INDEX)
_scalar = declare("gguf_get_val_data", ctypes.c_void_p, _HANDLE, _INDEX)
_length = declare("gguf_get_arr_n", ctypes.c_size_t, _HANDLE, _INDEX)
_items = declare("gguf_get_arr_data", ctypes.c_void_p, _HANDLE, _INDEX)
_find_tensor = declare("gguf_find_tensor", _INDEX, _HANDLE, ctypes.c_char_p)
_tensor_sizes = declare("gguf_get_tensor_ne", ctypes.POINTER(ctypes.c_int64), _HANDLE, _INDEX)
_tensor_type = declare("gguf_get_tensor_type", ctypes.c_int, _HANDLE, _INDEX)
_tensor_size = declare("gguf_get_tensor_size", ctypes.c_size_t, _HANDLE, _INDEX)
_tensor_offset = declare("gguf_get_tensor_offset", ctypes.c_size_t, _HANDLE, _INDEX)
_data_offset = declare("gguf_get_data_offset", ctypes.c_size_t, _HANDLE)
_traits = declare("ggml_get_type_traits", ctypes.POINTER(_Traits), ctypes.c_int)


class GgufFile:
    """The key-values and tensors of one file. Use as a context manager.

    Raises:
        UsageError: no such file.
        ModelError: not a GGUF, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._undo = ExitStack()
        self._header = self._undo.enter_context(header_of(path))

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self._undo.close()

    def text(self, key: str) -> str | None:
        """The string under `key`; None if there is none."""
        index = self._index(key)
        if index < 0 or _kind(self._header, index) != _STRING:
            return None
        return str(_string(self._header, index).decode("utf-8", "replace"))

    def number(self, key: str) -> float | int | None:
        """The number under `key`; None if there is none."""
        index = self._index(key)
        dtype = _DTYPES[_kind(self._header, index)] if index >= 0 else None
        if dtype is None:
            return None
        return _copied(_scalar(self._header, index), 1, dtype)[0].item()  # type: ignore[no-any-return]

    def numbers(self, key: str, dtype: DTypeLike) -> NDArray[Any] | None:
        """The array of `dtype` under `key`, shape (n,); None if there is none of this type."""
        index = self._index(key)
        if index < 0 or _kind(self._header, index) != _ARRAY:
            return None
        item = _DTYPES[_item_kind(self._header, index)]
        if item is None or np.dtype(item) != np.dtype(dtype):
            return None
        n = _length(self._header, index)
        return _copied(_items(self._header, index), n, dtype) if n else np.empty(0, dtype)

    def tensor(self, name: str) -> Tensor | None:
        """The tensor `name`, which outlives this; None if there is none."""
        index = _find_tensor(self._header, name.encode())
        if index < 0:
            return None
        begin = _data_offset(self._header) + _tensor_offset(self._header, index)
        size = _tensor_size(self._header, index)
        if begin + size > self.path.stat().st_size:
            raise ModelError(f"{self.path} is truncated: download or copy it again")
        columns, *rest = (int(n) for n in _tensor_sizes(self._header, index)[:_SIZES])
        return Tensor(
            name=name,
            shape=(int(np.prod(rest)), columns),
            data=np.memmap(self.path, np.uint8, "r", begin, (size,)),
            _type=_tensor_type(self._header, index),
        )

    def _index(self, key: str) -> int:
        return int(_find_key(self._header, key.encode()))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix in a file, mapped. A vector is a matrix of one row.

    Attributes:
        shape: rows, columns.
        data: its bytes as the file has them.
    """

    name: str
    shape: tuple[int, int]
    data: NDArray[np.uint8]
    _type: int

    def rows(self, ids: Sequence[int] | NDArray[np.integer[Any]]) -> Rows:
        """The rows `ids`, dequantised: float32, (len(ids), columns).

        Raises:
            IndexError: there is no such row.
        """
        n, columns = self.shape
        if len(ids) and not 0 <= min(ids) <= max(ids) < n:
            raise IndexError(f"{self.name} has {n} rows")
        stride = len(self.data) // n
        if self._type == _F32:
            everything: Rows = self.data.view(np.float32).reshape(self.shape)
            return everything[np.asarray(ids, np.intp)]
        to_float = _traits(self._type).contents.to_float
        rows = np.empty((len(ids), columns), np.float32)
        source, target = self.data.ctypes.data, rows.ctypes.data
        for i, row in enumerate(ids):
            to_float(source + int(row) * stride, target + i * rows.strides[0], columns)
        return rows


def find_tensor(path: Path, name: str) -> Tensor:
    """The tensor `name` of a model, whose first part `path` is if it is split.

    Raises:
        UsageError: no such file.
        ModelError: no part of the model has it, or a part is missing or damaged.
    """
    for part in _parts(path):
        with GgufFile(part) as file:
            tensor = file.tensor(name)
        if tensor is not None:
            return tensor
    raise ModelError(f"{path} has no tensor {name}")


def _parts(path: Path) -> list[Path]:
    with GgufFile(path) as file:
        n = int(file.number("split.count") or 1)
    ending = f"-00001-of-{n:05}.gguf"
    if n == 1:
        return [path]
    if not path.name.endswith(ending):
        raise ModelError(f"{path} is one of {n} parts of a model: give the first")
    stem = path.name[: -len(ending)]
    return [path.with_name(f"{stem}-{i:05}-of-{n:05}.gguf") for i in range(1, n + 1)]


def _copied(address: int, n: int, dtype: DTypeLike) -> NDArray[Any]:
    size = n * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(address, size), dtype)
