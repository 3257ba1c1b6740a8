"""Operations on rows of logits in the native library: `RowOps`, a call each.

Right after a pass the processor's caches hold weights, and each of NumPy's operations is a trip to
memory, whatever it computes: few calls count, and arrays are handed over as cheaply as can be.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np

from spec_cpu.sampling.logits import Floats, Ids, Logits, NumpyRowOps, finite_top

_NOT_FINITE = -1  # in place of a count; anything else below 0 says that NumPy must do it

# The address in a capsule: `__array_struct__` is one of the few things of an array that are quick
# to get. What it points to lives as long as the capsule does.
_inside = ctypes.pythonapi.PyCapsule_GetPointer
_inside.argtypes = [ctypes.py_object, ctypes.c_char_p]
_inside.restype = ctypes.c_void_p


class NativeRowOps:
    """`RowOps` with the library; what is no contiguous row of float32 is left to NumPy."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, count, real, single = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_double,
            ctypes.c_float,
        )
        self._argmax = library.spec_cpu_argmax
        self._argmax.argtypes = [pointer]
        self._near = library.spec_cpu_near
        self._near.argtypes = [pointer, single, pointer]
        self._top_k = library.spec_cpu_top_k
        self._top_k.argtypes = [pointer, count, pointer]
        self._truncate = library.spec_cpu_truncate
        self._truncate.argtypes = [pointer, count, real, single, real, pointer, pointer]
        self._penalize = library.spec_cpu_penalize
        self._penalize.argtypes = [pointer, pointer, count, single, single, single]
        for function in (self._argmax, self._near, self._top_k, self._truncate, self._penalize):
            function.restype = count
        self._numpy = NumpyRowOps()

    def argmax(self, logits: Logits) -> int:
        row = logits.__array_struct__
        i = int(self._argmax(_inside(row, None)))
        return i if i >= 0 else self._refused(i, logits).argmax(logits)

    def near(self, logits: Logits, gap: float) -> Ids:
        ids = np.empty(len(logits), np.intp)
        row, to = logits.__array_struct__, ids.__array_struct__
        n = self._near(_inside(row, None), gap, _inside(to, None))
        return ids[:n] if n >= 0 else self._refused(n, logits).near(logits, gap)

    def top_k(self, logits: Logits, k: int) -> Ids:
        ids = np.empty(min(k, len(logits)), np.intp)
        row, to = logits.__array_struct__, ids.__array_struct__
        n = self._top_k(_inside(row, None), len(ids), _inside(to, None))
        return ids if n >= 0 else self._refused(n, logits).top_k(logits, k)

    def truncate(
        self, logits: Logits, k: int, top_p: float, log_min_p: float, temperature: float
    ) -> tuple[Ids, Floats]:
        k = min(k, len(logits))
        ids, p = np.empty(k, np.intp), np.empty(k)
        row, to, too = logits.__array_struct__, ids.__array_struct__, p.__array_struct__
        n = self._truncate(
            _inside(row, None),
            k,
            top_p,
            log_min_p,
            temperature,
            _inside(to, None),
            _inside(too, None),
        )
        if n >= 0:
            return ids[:n], p[:n]
        return self._refused(n, logits).truncate(logits, k, top_p, log_min_p, temperature)

    def penalize(
        self,
        logits: Logits,
        recent: Sequence[int],
        repeat: float,
        frequency: float,
        presence: float,
    ) -> None:
        tokens = array("i", recent)
        row, (address, n) = logits.__array_struct__, tokens.buffer_info()
        if self._penalize(_inside(row, None), address, n, repeat, frequency, presence) < 0:
            self._numpy.penalize(logits, recent, repeat, frequency, presence)

    def _refused(self, status: int, logits: Logits) -> NumpyRowOps:
        """Who does it instead, unless nobody can."""
        if status == _NOT_FINITE:
            finite_top(logits)
        return self._numpy
