"""The file of a draft head: what is written is read; anything else is refused in one clear line."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import tiny_head
from tiny_head import edited

from spec_cpu.errors import ModelError, UsageError
from spec_cpu.heads.container import QUANTIZATIONS
from spec_cpu.heads.eagle import write_eagle
from spec_cpu.heads.file import is_head, read_head
from spec_cpu.heads.identity import HeadTarget, check_target
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import find_tensor


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_what_is_written_is_read(target: Path, tmp_path: Path, quantization: str) -> None:
    tokens = [9, 4, 30, 5]
    weights = tiny_head.eagle_weights(target, tokens=tokens, feature=0.5)
    weights = replace(weights, bias=np.linspace(-1, 1, 64, dtype=np.float32))
    path = tmp_path / "head.gguf"
    with Model(target) as model:
        made_for = HeadTarget.of(model)
        write_eagle(
            path,
            weights,
            made_for,
            quantization=quantization,
            acceptance=(0.5, 0.25),
            card="on sand",
        )
        head = read_head(path)
        assert check_target(head.path, head.label.target, model) is None
    assert is_head(path)
    assert not is_head(target)
    assert (head.label.kind, head.label.target, head.label.card) == ("eagle", made_for, "on sand")
    assert head.label.acceptance == (0.5, 0.25)
    assert head.label.tokens.tolist() == sorted(tokens)
    for vector in ("feature_scale", "embedding_scale", "bias"):
        np.testing.assert_array_equal(getattr(head, vector), getattr(weights, vector))
    for matrix in ("combine_feature", "combine_embedding"):
        written = getattr(weights, matrix)
        off = np.abs(getattr(head, matrix) - written).max(axis=1)
        assert (off <= 0.51 / 127 * np.abs(written).max(axis=1)).all()
    output = find_tensor(path, "token_embd.weight").rows(range(4))
    order = weights.tokens.argsort()
    error = {"F16": 1e-3, "Q8_0": 5e-3, "Q4_0": 0.1}[quantization]
    np.testing.assert_allclose(output, weights.output[order], atol=error)
    assert list(tmp_path.iterdir()) == [path]


def test_llama_cpp_runs_it(target: Path, tmp_path: Path) -> None:
    head = tiny_head.write_head(tmp_path / "head.gguf", target, tokens=[5, 6, 7])
    with Model(head) as model:
        assert model.vocab.n == 3


def test_a_missing_acceptance_is_empty(target: Path, tmp_path: Path) -> None:
    assert read_head(tiny_head.write_head(tmp_path / "h.gguf", target)).label.acceptance == ()


@pytest.mark.parametrize("field", ["n_vocab", "n_embd"])
def test_weights_must_fit_the_target(target: Path, tmp_path: Path, field: str) -> None:
    weights = tiny_head.eagle_weights(target)
    made_for = HeadTarget("tiny", "0" * 16, 64, 32, "0" * 16)
    with pytest.raises(ValueError, match="target"):
        write_eagle(tmp_path / "h.gguf", weights, replace(made_for, **{field: 8}))


@pytest.mark.parametrize("field", ["output", "attn_k", "ffn_down", "bias", "tokens"])
def test_weights_must_fit_each_other(target: Path, field: str) -> None:
    weights = tiny_head.eagle_weights(target)
    with pytest.raises(ValueError, match=r"is|outputs"):
        replace(weights, **{field: getattr(weights, field)[:-1]})


def test_a_token_has_one_output(target: Path) -> None:
    with pytest.raises(ValueError, match="two outputs"):
        tiny_head.eagle_weights(target, tokens=[4, 5, 4])


def test_an_unknown_quantization_is_named(target: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Q9_9"):
        tiny_head.write_head(tmp_path / "h.gguf", target, quantization="Q9_9")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "hydra"}, "kind hydra, version 1.*update spec-cpu"),
        ({"version": 2}, "version 2.*update spec-cpu"),
        ({"version": None}, "version None"),
        ({"tokens": [7, 6, 5]}, "ascending order"),
        ({"tokens": [5, 6, 32]}, "the target's"),
        ({"tokens": [-1, 6, 7]}, "the target's"),
        ({"tokens": [5, 6]}, "output does not fit"),
        ({"tokens": None}, "spec_cpu.head.tokens is missing"),
        ({"bias": [1.0, 2.0, 3.0]}, "spec_cpu.head.bias is missing, or not"),
        ({"combine_feature": None}, "spec_cpu.head.combine_feature is missing"),
        ({"combine_embedding_scales": None}, "spec_cpu.head.combine_embedding_scales"),
        ({"target_fingerprint": None}, "lacks spec_cpu.head.target.fingerprint"),
        ({"target_n_embd": None}, "lacks spec_cpu.head.target.n_embd"),
    ],
)
def test_a_head_that_cannot_be_used_is_refused(
    target: Path, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    good = tiny_head.write_head(tmp_path / "good.gguf", target, tokens=[5, 6, 7])
    with pytest.raises(ModelError, match=message) as raised:
        read_head(edited(good, tmp_path / "bad.gguf", **changed))
    assert "bad.gguf" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.99])
def test_a_truncated_head_says_so(target: Path, tmp_path: Path, fraction: float) -> None:
    good = tiny_head.write_head(tmp_path / "good.gguf", target)
    with pytest.raises(ModelError, match=r"truncated|damaged|empty"):
        read_head(tiny.truncate(good, tmp_path / "short.gguf", fraction))


def test_a_model_is_no_head(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no draft head"):
        read_head(target)
    with pytest.raises(UsageError, match="no such file"):
        read_head(tmp_path / "none.gguf")


def test_another_file_of_the_same_model_is_noticed(target: Path, tmp_path: Path) -> None:
    head = read_head(tiny_head.write_head(tmp_path / "h.gguf", target))
    other = tiny.write_llama(tmp_path / "q4.gguf", n_vocab=32, n_embd=64, dtype="Q4_0")
    with Model(other) as model:
        notice = check_target(head.path, head.label.target, model)
    assert notice is not None
    assert "fewer of its drafts" in notice


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n_vocab": 40, "n_embd": 64}, "another vocabulary"),
        ({"n_vocab": 32, "n_embd": 64, "eos": 9}, "another vocabulary"),
        ({"n_vocab": 32, "n_embd": 128}, "128 wide, not 64"),
        ({"n_vocab": 32, "n_embd": 32}, "32 wide, not 64"),
    ],
)
def test_another_target_is_refused(
    target: Path, tmp_path: Path, other: dict[str, int], message: str
) -> None:
    head = read_head(tiny_head.write_head(tmp_path / "h.gguf", target))
    with (
        Model(tiny.write_llama(tmp_path / "other.gguf", **other)) as model,
        pytest.raises(ModelError, match=message) as raised,
    ):
        check_target(head.path, head.label.target, model)
    assert "draft head for tiny llama model" in str(raised.value)


def test_every_field_of_the_target_is_in_the_file(target: Path, tmp_path: Path) -> None:
    path = tiny_head.write_head(tmp_path / "h.gguf", target)
    keys = gguf.GGUFReader(path).fields
    for field in fields(HeadTarget):
        assert f"spec_cpu.head.target.{field.name}" in keys
