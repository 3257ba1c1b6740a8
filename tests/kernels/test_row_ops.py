"""Operations on rows of logits: the native library gives what NumPy does, to the bit."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from spec_cpu.errors import KernelsError, LogitsError
from spec_cpu.kernels import build
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.row_ops import NativeRowOps
from spec_cpu.sampling.logits import Logits, NumpyRowOps, RowOps

NUMPY = NumpyRowOps()
LESSER = ("avx2", "avx-512")


@pytest.fixture(scope="module", params=["as it ships", *LESSER])
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RowOps:
    if request.param in LESSER:
        return compiled(request.param, tmp_path_factory.mktemp("rows") / "rows.so")
    kernels = Kernels("on")
    if kernels.notice:
        pytest.skip(kernels.notice)
    assert isinstance(kernels.row_ops, NativeRowOps)
    return kernels.row_ops


def compiled(instructions: str, library: Path) -> RowOps:
    """With the flags that the library ships with, which is faster than all of it."""
    try:
        found = build.find_build(instructions)
    except KernelsError as error:
        pytest.skip(str(error))
    source = Path(build.__file__).parent / "native" / "sampling.cpp"
    command = [*found.compiler, *found.flags, "-shared", str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=300)
    return NativeRowOps(ctypes.CDLL(str(library)))


# Rows around the sizes of a vector and of a block, with ties of all kinds.
numbers = st.floats(-30, 30, width=32) | st.sampled_from([0.0, -0.0, 1.0, 29.5, -np.inf])
lengths = st.integers(1, 40) | st.sampled_from([127, 128, 129, 256, 640, 1000])
rows = lengths.flatmap(lambda n: arrays.arrays(np.float32, n, elements=numbers)).filter(
    lambda row: bool(np.isfinite(row.max()))
)


@given(row=rows, gap=st.floats(0, 40), k=st.integers(1, 1100))
def test_the_same_tokens(native: RowOps, row: Logits, gap: float, k: int) -> None:
    assert native.argmax(row) == NUMPY.argmax(row) == int(row.argmax())
    np.testing.assert_array_equal(native.near(row, gap), NUMPY.near(row, gap))
    np.testing.assert_array_equal(native.top_k(row, k), NUMPY.top_k(row, k))


@given(row=rows, k=st.integers(1, 1100))
def test_the_largest_are_the_first_of_a_sorted_row(row: Logits, k: int) -> None:
    np.testing.assert_array_equal(NUMPY.top_k(row, k), (-row).argsort(kind="stable")[:k])


@given(row=rows, gap=st.floats(0, 40))
def test_near_is_at_most_so_far_below(row: Logits, gap: float) -> None:
    bound = row.max() - np.float32(gap)
    assert NUMPY.near(row, gap).tolist() == [i for i, x in enumerate(row) if x >= bound]


@pytest.mark.slow
@given(
    row=rows,
    k=st.integers(1, 1100),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 1e-6]),
    log_min_p=st.sampled_from([-np.inf, -3.0, -0.01, 0.0]),
    temperature=st.sampled_from([1e-4, 0.8, 1.0, 3.0]),
)
def test_the_same_distribution(
    native: RowOps, row: Logits, k: int, top_p: float, log_min_p: float, temperature: float
) -> None:
    ids, p = native.truncate(row, k, top_p, log_min_p, temperature)
    expected_ids, expected = NUMPY.truncate(row, k, top_p, log_min_p, temperature)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(p, expected)
    assert p.sum() == pytest.approx(1)


@given(
    row=rows,
    recent=st.lists(st.integers(0, 1100) | st.integers(0, 5), max_size=80),
    repeat=st.floats(1e-4, 1e9),
    frequency=st.floats(-3, 3) | st.sampled_from([0.0, 1e9]),
    presence=st.floats(-3, 3),
)
def test_the_same_penalties(
    native: RowOps, row: Logits, recent: list[int], repeat: float, frequency: float, presence: float
) -> None:
    ours, expected = row.copy(), row.copy()
    native.penalize(ours, recent, repeat, frequency, presence)
    NUMPY.penalize(expected, recent, repeat, frequency, presence)
    np.testing.assert_array_equal(ours.view(np.int32), expected.view(np.int32))


def test_penalties_are_not_fused(native: RowOps) -> None:
    """A compiler may round a product and a difference once; NumPy rounds twice."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        row, factors = rng.normal(0, 9, 50).astype(np.float32), rng.normal(0, 1, 3)
        ours, expected = row.copy(), row.copy()
        recent = rng.integers(0, 50, 80).tolist()
        for ops, changed in ((native, ours), (NUMPY, expected)):
            ops.penalize(changed, recent, 1.1 + abs(factors[0]), factors[1], factors[2])
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("n", [1, 40, 128, 1000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_refused(native: RowOps, n: int, bad: float) -> None:
    for where in {0, n // 2, n - 1}:
        row = np.full(n, -np.inf if bad == -np.inf else -1.0, np.float32)
        row[where] = bad
        refused(native, row)
        refused(NUMPY, row)


def test_an_empty_row_is_refused(native: RowOps) -> None:
    refused(native, np.empty(0, np.float32))
    refused(NUMPY, np.empty(0, np.float32))


def refused(ops: RowOps, row: Logits) -> None:
    for operation in (
        lambda: ops.argmax(row),
        lambda: ops.near(row, 6.0),
        lambda: ops.top_k(row, 3),
        lambda: ops.truncate(row, 3, 0.9, -3.0, 0.8),
    ):
        with pytest.raises(LogitsError, match="not finite"):
            operation()


def test_a_row_that_is_not_contiguous(native: RowOps) -> None:
    table = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    row, same = table[:, 1], table[:, 1].copy()
    assert native.argmax(row) == native.argmax(same)
    np.testing.assert_array_equal(native.near(row, 1.0), native.near(same, 1.0))
    np.testing.assert_array_equal(native.top_k(row, 9), native.top_k(same, 9))
    for ours, theirs in zip(
        native.truncate(row, 9, 0.9, -3.0, 0.8),
        native.truncate(same, 9, 0.9, -3.0, 0.8),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    native.penalize(row, [3, 5], 1.5, 0.1, 0.1)
    native.penalize(same, [3, 5], 1.5, 0.1, 0.1)
    np.testing.assert_array_equal(row, same)


def test_sessions_use_the_library_where_there_is_one() -> None:
    assert isinstance(Kernels("off").row_ops, NumpyRowOps)
