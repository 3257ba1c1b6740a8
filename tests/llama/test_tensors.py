"""Reading GGUF files through ggml: the same numbers as the gguf package reads."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from gguf import GGMLQuantizationType as GGMLType

from spec_cpu.errors import ModelError, UsageError
from spec_cpu.llama.tensors import GgufFile, find_tensor

ROWS, COLUMNS = 7, 256


def is_known(kind: GGMLType) -> bool:
    """Does gguf-py know what its blocks hold?"""
    block = np.zeros(gguf.GGML_QUANT_SIZES[kind][1], np.uint8)
    try:
        gguf.quants.dequantize(block, kind)
    except NotImplementedError:
        return False
    return True


FORMATS = [kind for kind in GGMLType if is_known(kind)]


def write(path: Path, kind: GGMLType) -> Path:
    """A file with one matrix, of bytes that are valid blocks of `kind`."""
    rng = np.random.default_rng(3)
    values = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    try:
        data = gguf.quants.quantize(values, kind)
    except NotImplementedError:  # it can only read them: any bytes with small scales will do
        n = gguf.quant_shape_to_byte_shape((ROWS, COLUMNS), kind)
        data = rng.integers(0, 48, n, dtype=np.uint8)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("first.weight", np.ones(3, np.float32))
    writer.add_tensor("some.weight", data, raw_dtype=kind)
    writer.add_uint8("a.small", 200)
    writer.add_float64("a.large", 1e300)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "grün")
    writer.add_array("an.array", [1, -2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_rows_are_those_of_the_gguf_package(tmp_path: Path, kind: GGMLType) -> None:
    path = write(tmp_path / "some.gguf", kind)
    tensor = find_tensor(path, "some.weight")
    raw = gguf.GGUFReader(path).tensors[1]
    expected = gguf.quants.dequantize(raw.data, kind).reshape(ROWS, COLUMNS)
    assert tensor.shape == (ROWS, COLUMNS)
    ids = [6, 0, 3, 3]
    got = tensor.rows(ids)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected[ids], rtol=1e-6)
    assert tensor.rows([]).shape == (0, COLUMNS)


@pytest.mark.parametrize("row", [-1, ROWS])
@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.Q4_0])
def test_there_are_no_other_rows(tmp_path: Path, kind: GGMLType, row: int) -> None:
    tensor = find_tensor(write(tmp_path / "some.gguf", kind), "some.weight")
    with pytest.raises(IndexError, match="7 rows"):
        tensor.rows([0, row])


def test_values_come_with_their_types(tmp_path: Path) -> None:
    with GgufFile(write(tmp_path / "some.gguf", GGMLType.F32)) as file:
        assert (file.number("a.small"), file.number("a.large")) == (200, 1e300)
        assert file.number("a.bool") is True
        assert file.text("a.text") == "grün"
        array = file.numbers("an.array", np.int32)
        assert array is not None
        assert array.tolist() == [1, -2, 3]
        # Of another type, or not there:
        assert file.numbers("an.array", np.uint32) is None
        assert file.numbers("a.small", np.uint8) is None
        assert file.numbers("none", np.uint8) is None
        assert file.text("a.small") is file.text("none") is None
        assert file.number("a.text") is file.number("an.array") is file.number("none") is None
        assert file.tensor("none") is None
        vector = file.tensor("first.weight")
    assert vector is not None
    assert vector.rows([0]).tolist() == [[1, 1, 1]]


def test_a_split_model_is_searched_part_by_part(tmp_path: Path) -> None:
    whole = tiny.write_llama(tmp_path / "whole.gguf")
    first = tiny.write_llama(tmp_path / "parts.gguf", split=True)
    for name in ("token_embd.weight", "blk.0.ffn_down.weight"):
        np.testing.assert_array_equal(
            find_tensor(first, name).rows([1, 2]), find_tensor(whole, name).rows([1, 2])
        )
    with pytest.raises(ModelError, match="no tensor nothing"):
        find_tensor(first, "nothing")
    second = next(tmp_path.glob("*-00002-of-00002.gguf"))
    with pytest.raises(ModelError, match="give the first"):
        find_tensor(second, "token_embd.weight")
    second.unlink()
    with pytest.raises(UsageError, match="no such file"):
        find_tensor(first, "nothing")


def test_a_truncated_file_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "some.gguf", GGMLType.F32)
    with pytest.raises(ModelError, match="truncated"):
        find_tensor(tiny.truncate(path, tmp_path / "short.gguf", 0.7), "some.weight")
