"""bench/shapes.py: files in the shapes of public models, and what is measured with them."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
from bench_module import load_bench

from spec_cpu import load
from spec_cpu.costs import theory
from spec_cpu.errors import UsageError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import FORMATS
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.llama.vocab import check_same_vocabulary

files = load_bench("shape_files")
passes = load_bench("shape_passes")
cells = load_bench("shape_cells")
tables = load_bench("shape_tables")
shapes = load_bench("shapes")

PARAMETERS = {  # as the models' publishers count them, and llama.cpp loads them
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-4b": 4_022_468_096,
    "qwen3-0.6b": 596_049_920,
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-270m": 268_098_176,
}


def small(name: str, *, embd: int = 256) -> Any:
    """The shape with few and narrow layers; everything else stays."""
    shape = files.SHAPES[name]
    changed = {"layers": 10, "embd": embd, "ff": 512, "vocab": 320, "heads": 4, "heads_kv": 2}
    if shape.architecture == "qwen2":
        return replace(shape, **changed, head=embd // 4)
    return replace(shape, **changed, head=64)


@pytest.fixture(params=["llama-3.1-8b", "qwen2.5-0.5b", "qwen3-4b", "gemma-3-270m"])
def shape_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(name: str, folder: Path, file_format: str, **sizes: int) -> Path:
    path = folder / f"{name}-{file_format}.gguf"
    files.write(small(name, **sizes), name, path, file_format)
    return path


def types_in(path: Path) -> dict[str, str]:
    reader: Any = gguf.GGUFReader(path)
    return {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}


@pytest.mark.parametrize("name", files.SHAPES)
def test_a_shape_has_as_many_parameters_as_its_model(name: str) -> None:
    shape = files.SHAPES[name]
    factors = shape.head // 2 if shape.architecture == "llama" else 0  # of frequencies: no weights
    assert files.parameters(shape) == PARAMETERS[name] + factors


@pytest.mark.parametrize(
    ("file_format", "embd"),
    # Rows of 320 are no blocks of 256: other formats take the place of those that need them.
    [("Q4_K_M", 256), ("Q4_K_M", 320), ("Q4_0", 320), ("Q8_0", 320)],
)
def test_tensors_have_the_formats_that_llama_cpp_gives_them(
    shape_name: str, file_format: str, embd: int, tmp_path: Path
) -> None:
    ours = written(shape_name, tmp_path, file_format, embd=embd)
    source = written(shape_name, tmp_path, "Q8_0", embd=embd)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = FORMATS[file_format], True
    other = tmp_path / "quantized.gguf"
    failed = llama_cpp.llama_model_quantize(
        os.fsencode(source), os.fsencode(other), ctypes.byref(params)
    )
    assert not failed
    assert types_in(ours) == types_in(other)


@pytest.mark.parametrize("file_format", files.BASE)
def test_models_load_and_compute(shape_name: str, file_format: str, tmp_path: Path) -> None:
    path = written(shape_name, tmp_path, file_format)
    shape = small(shape_name)
    with Model(path) as model, Context(model, n_ctx=64) as context:
        assert model.info.parameters == files.parameters(shape)
        assert model.info.quantization == file_format
        assert model.vocab.n == shape.vocab
        rows = KVSequence(context).score([5, 300, 7, 5])
        assert np.isfinite(rows).all()
        # As large as they are meant to be: neither nothing nor close to what overflows.
        assert (np.abs(rows).max(axis=1) < 100).all()
        assert (rows.std(axis=1) > 0.1).all()
        assert not np.allclose(rows[0], rows[3], atol=1e-3)  # it sees what came before


def test_a_file_has_the_tensors_of_its_shape(shape_name: str, tmp_path: Path) -> None:
    reader: Any = gguf.GGUFReader(written(shape_name, tmp_path, "Q4_K_M"))
    there = {each.name: tuple(map(int, reversed(each.shape))) for each in reader.tensors}
    assert there == {each.name: each.shape for each in files.tensors(small(shape_name))}


@pytest.mark.parametrize("target", files.DRAFTS)
def test_a_draft_has_its_targets_vocabulary_and_drafts(target: str, tmp_path: Path) -> None:
    large = written(target, tmp_path, "Q4_0")
    little = written(files.DRAFTS[target], tmp_path, "Q4_0")
    with Model(large) as one, Model(little) as other:
        check_same_vocabulary(one.vocab, other.vocab)
    with load(large, little, k=2, kernels="off", ctx=128) as session:
        steps = list(session.generate("Hello", max_tokens=6, ignore_eos=True))
    assert sum(len(step.tokens) for step in steps) >= 6


def test_random_blocks_have_the_deviation_asked_for() -> None:
    for kind in (files.GGMLType.Q4_K, files.GGMLType.Q6_K, files.GGMLType.Q5_0):
        blocks = files.random_blocks(kind, 0.02, 0)
        values = gguf.quants.dequantize(blocks, kind)
        assert values.std() == pytest.approx(0.02, rel=0.02)
        assert values.mean() == pytest.approx(0, abs=0.001)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    def digest(seed: int) -> bytes:
        path = tmp_path / "model.gguf"
        files.write(small("qwen2.5-0.5b"), "model", path, "Q4_K_M", seed=seed)
        return path.read_bytes()

    assert digest(1) == digest(1) != digest(2)


def test_llamas_slow_frequencies_are_stretched() -> None:
    for name in ("llama-3.1-8b", "llama-3.2-1b"):
        shape = files.SHAPES[name]
        factors = files.frequency_factors(shape)
        assert factors[0] == 1
        assert factors[-1] == pytest.approx(shape.rope_factor)
        assert (np.diff(factors) >= 0).all()


def test_unknown_formats_and_full_disks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="no format named Q9"):
        written("qwen3-4b", tmp_path, "Q9")
    usage = type("usage", (), {"free": 10})
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UsageError, match="choose another --folder"):
        written("qwen3-4b", tmp_path, "Q4_0")
    assert not list(tmp_path.iterdir())


def cell(path: Path, passes: dict[int, float], draft_step: float) -> Any:
    record = {
        "kernels": "stock",
        "load": 1.0,
        "memory": 1e9,
        "peak": 2e9,
        "prompts": {"256": [1.0]},
        "passes": {str(n): [seconds] for n, seconds in passes.items()},
        "draft_steps": [draft_step],
    }
    return cells.Cell(path, [record], [])


def test_where_wide_passes_and_drafts_are_free_the_speedup_is_the_expected_tokens(
    tmp_path: Path,
) -> None:
    ours = cell(tmp_path / "a", dict.fromkeys(shapes.WIDTHS, 0.1), 0.0)
    stock = cell(tmp_path / "b", dict.fromkeys(shapes.WIDTHS, 0.25), 0.0)
    for alpha, text in zip(tables.ALPHAS, tables.expected(ours, stock), strict=True):
        tokens = float(theory.expected_tokens(alpha, 8))
        assert text == f"k = 8: {tokens:.2f}, over llama.cpp {2.5 * tokens:.2f}"


def test_where_a_pass_costs_what_its_tokens_cost_nothing_is_drafted(tmp_path: Path) -> None:
    stock = cell(tmp_path / "a", {n: 0.1 * n for n in shapes.WIDTHS}, 0.01)
    assert tables.expected(stock, stock) == ["k = 0: 1.00, over llama.cpp 1.00"] * 3


def test_a_cell_is_kept_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    model = cells.RandomModel("qwen3-4b", "Q4_0")
    kept = cells.Cell.read(tmp_path / "native", model, "ours")
    kept.rounds.append({"load": 2.0})
    kept.save()
    again = cells.Cell.read(tmp_path / "native", model, "ours")
    assert again.rounds == [{"load": 2.0}]
    kept.path.write_text("{")
    with pytest.raises(UsageError, match="delete it"):
        cells.Cell.read(tmp_path / "native", model, "ours")


def test_engines_take_turns_and_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    known = {name: cells.Cell(tmp_path / name) for name in ("a", "b")}
    known["a"].rounds.append({})
    order = []
    for name, records, prompt in shapes.missing(known, 2, long=True):
        records.append({})
        order.append((name, prompt))
    assert order == [("b", 256), ("a", 256), ("b", 256), ("a", 2000), ("b", 2000)]
    assert not list(shapes.missing(known, 2, long=True))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A target and its draft, small, with their files in `tmp_path`."""
    for name in ("qwen3-4b", "qwen3-0.6b"):
        monkeypatch.setitem(files.SHAPES, name, small(name))
    monkeypatch.setattr(shapes, "SWEEPS", (1, 2))
    model = cells.RandomModel("qwen3-4b", "Q4_0")
    model.write(tmp_path)
    return model


def measurement(tmp_path: Path, **changed: object) -> argparse.Namespace:
    settings = {
        "python": sys.executable,
        "isa": "avx2",
        "ik": None,
        "engines": "ours,llama.cpp",
        "folder": tmp_path,
        "state": tmp_path / "state",
        "rounds": 1,
        "no_long": True,
        "seconds": None,
    }
    return argparse.Namespace(**settings | changed)


def test_llama_cpp_is_measured_in_a_process_of_its_own(pair: Any, tmp_path: Path) -> None:
    record = shapes.Python(sys.executable, ours=False, isa="avx2").run(pair, tmp_path, 256)
    assert record["kernels"] == "stock"
    assert list(record["passes"]) == [str(n) for n in shapes.WIDTHS]
    lists = [*record["passes"].values(), *record["prompts"].values(), record["draft_steps"]]
    assert all(lists)
    assert all(seconds > 0 for seconds in [record["load"], *chain.from_iterable(lists)])
    assert 0 < record["memory"] <= record["peak"]


LLAMA_BENCH = """#!{python}
import json, sys
lengths = map(int, sys.argv[sys.argv.index("-p") + 1].split(","))
repeats = int(sys.argv[sys.argv.index("-r") + 1])
print(json.dumps([dict(n_prompt=n, samples_ns=[n * 1e6] * repeats) for n in lengths]))
"""


def test_llama_bench_sweeps_over_the_widths_as_we_do(pair: Any, tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text(LLAMA_BENCH.format(python=sys.executable))
    program.chmod(0o700)
    record = shapes.LlamaBench(program).run(pair, tmp_path, 256)
    assert record["prompts"] == {"256": [0.256] * 2}
    assert record["passes"] == {str(n): [n / 1e3] * 4 for n in shapes.WIDTHS}
    assert record["peak"] > 0


def test_what_fails_is_named(pair: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot run"):
        shapes.LlamaBench(tmp_path / "none").run(pair, tmp_path, 256)
    pair.file(tmp_path).write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"failed \(1\): .*is damaged"):
        shapes.Python(sys.executable, ours=False, isa="avx2").run(pair, tmp_path, 256)


def test_a_run_goes_on_where_it_ended(
    pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def run(engine: Any, model: Any, folder: Path, prompt: int) -> dict[str, Any]:
        ran.append(engine.ours)
        return dict(cell(folder, dict.fromkeys(shapes.WIDTHS, 0.1), 0.01).rounds[0])

    monkeypatch.setattr(shapes.Python, "run", run)
    shapes.measure([pair], measurement(tmp_path, seconds=0.0))
    assert not ran
    assert "goes on" in capsys.readouterr().out
    shapes.measure([pair], measurement(tmp_path))
    shapes.measure([pair], measurement(tmp_path, rounds=2))
    assert ran == [True, False] * 2
    lines = tables.tables([pair], tmp_path / "state" / "avx2")
    assert sum("| ours |" in line for line in lines) == 2
    assert not any("nan" in line for line in lines)


def test_unknown_shapes_are_named() -> None:
    with pytest.raises(UsageError, match=r"gpt-9 is none of llama-3\.1-8b"):
        shapes.chosen("gpt-9", "Q4_0")
    with pytest.raises(UsageError, match="Q9 is none of Q4_K_M"):
        shapes.chosen("qwen3-4b", "Q9")
    assert len(shapes.chosen("qwen3-4b,qwen3-0.6b", "Q4_0,Q8_0")) == 4
    assert math.isnan(cells.Cell(Path("none")).peak)


def test_state_is_what_json_holds(tmp_path: Path) -> None:
    kept = cell(tmp_path / "cell.json", {1: 0.1}, 0.01)
    kept.save()
    assert json.loads(kept.path.read_text())["rounds"] == kept.rounds
    assert [path.name for path in tmp_path.iterdir()] == ["cell.json"]
