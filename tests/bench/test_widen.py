"""bench/widen.py: a larger model that computes the same function."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from bench_module import load_bench

from spec_cpu.errors import UsageError
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import quantize
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.logits import Logits

TOKENS = [tiny.BOS, 5, 8, 13, 21, 4, 9]
PROMPT = "Explain how a sailing boat can move against the wind."

widen = load_bench("widen")


@pytest.fixture(scope="module")
def source(models: Path) -> Path:
    path = models / "narrow.gguf"
    return tiny.write_llama(path, n_layer=2, n_head=2, scale=3, chat_template=tiny.CHATML)


def logits(path: Path) -> Logits:
    """A row for each of `TOKENS`."""
    with Model(path) as model, Context(model, n_ctx=64, max_outputs=len(TOKENS)) as context:
        return KVSequence(context).score(TOKENS).copy()


NEAR = 0.5  # logits: the rounding of activations to 8 bits makes more of the rounding before it


def greedy(path: Path, n: int) -> list[int]:
    """The `n` most probable tokens after `PROMPT`, one by one."""
    with Model(path) as model, Context(model, n_ctx=256) as context:
        sequence = KVSequence(context)
        *prompt, token = model.vocab.tokenize(PROMPT)
        sequence.prefill(prompt)
        tokens = []
        for _ in range(n):
            token = int(sequence.score([token])[0].argmax())
            tokens.append(token)
    return tokens


def write_grouped(path: Path) -> Path:
    """A model whose query heads share key-value heads, two each; its eps is large enough to count.

    It is `tiny`'s model of four heads without every other key-value head.
    """
    whole = tiny.write_llama(path.with_stem("whole"), n_embd=64, n_head=4, n_layer=2, scale=3)
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(path, "llama")
    changed = {
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 0.1,
    }
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            value = changed.get(key, field.contents())
            writer.add_key_value(key, value, field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        shared = tensor.name.endswith(("attn_k.weight", "attn_v.weight"))
        writer.add_tensor(tensor.name, np.array(tensor.data[:32] if shared else tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("heads", "ff"), [(None, None), (2, 64), (8, 96), (5, 64)])
def test_the_logits_are_the_sources(
    source: Path, tmp_path: Path, heads: int | None, ff: int | None
) -> None:
    sizes, n = widen.widen(source, tmp_path / "w.gguf", heads=heads, ff=ff, type_name="F32")
    np.testing.assert_allclose(logits(tmp_path / "w.gguf"), logits(source), atol=2e-3)
    with Model(tmp_path / "w.gguf") as model:
        assert model.info.parameters == n
        assert model.n_embd == sizes.embd == 16 * sizes.heads


def test_groups_of_heads_and_eps_are_kept(tmp_path: Path) -> None:
    grouped = write_grouped(tmp_path / "grouped.gguf")
    sizes, _ = widen.widen(grouped, tmp_path / "w.gguf", heads=10, type_name="F32")
    assert (sizes.heads, sizes.heads_kv, sizes.embd) == (10, 5, 160)
    np.testing.assert_allclose(logits(tmp_path / "w.gguf"), logits(grouped), atol=2e-3)


def test_what_the_source_says_of_itself_is_copied(source: Path, tmp_path: Path) -> None:
    widen.widen(source, tmp_path / "w.gguf", type_name="F32")
    with Model(source) as old, Model(tmp_path / "w.gguf") as new:
        sizes = {
            key for key in old.metadata if old.metadata[key] != new.metadata.get(key, "missing")
        }
        assert new.info.name == f"{old.info.name} widened"
        assert new.metadata["tokenizer.chat_template"] == tiny.CHATML
    assert sizes == {
        "general.name",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.embedding_length",
        "llama.feed_forward_length",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["w.gguf"]


def test_noise_changes_the_logits_the_more_the_larger(source: Path, tmp_path: Path) -> None:
    def distance(noise: float, seed: int = 0) -> float:
        path = tmp_path / "w.gguf"
        widen.widen(source, path, type_name="F32", noise=noise, seed=seed)
        return float(np.abs(logits(path) - logits(source)).mean())

    small, large = distance(0.01), distance(0.3)
    assert 0.001 < small < large / 5
    assert distance(0.01) == small
    assert distance(0.01, seed=1) != small


@pytest.mark.parametrize("name", widen.DIRECT)
def test_quantized_it_is_the_quantized_source(source: Path, tmp_path: Path, name: str) -> None:
    quantize(source, tmp_path / "q.gguf", name)
    for known in (source, tmp_path / "q.gguf"):
        widen.widen(known, tmp_path / "w.gguf", heads=6, ff=96, type_name=name)
        wide, quantized = logits(tmp_path / "w.gguf"), logits(tmp_path / "q.gguf")
        # Activations are rounded, too: now and then an element rounds to the other side.
        np.testing.assert_allclose(wide, quantized, atol=0.1)
        assert np.corrcoef(wide.ravel(), quantized.ravel())[0, 1] > 0.9999


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K"])
def test_other_formats_are_left_to_llama_cpp(source: Path, tmp_path: Path, name: str) -> None:
    widen.widen(source, tmp_path / "w.gguf", heads=16, ff=256, type_name=name)
    with Model(tmp_path / "w.gguf") as model:
        assert model.info.quantization == widen.SHORT.get(name, name)
    agreement = np.corrcoef(logits(tmp_path / "w.gguf").ravel(), logits(source).ravel())[0, 1]
    assert agreement > 0.95


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"heads": 1}, "only widen: at least 2 heads"),
        ({"ff": 32}, "only widen"),
        ({"heads": 3, "type_name": "Q4_0"}, "rows of 48: Q4_0 needs 32s"),
        ({"type_name": "Q9"}, "no format named Q9"),
    ],
)
def test_impossible_sizes_are_named(
    source: Path, tmp_path: Path, sizes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        widen.widen(source, tmp_path / "w.gguf", **sizes)
    assert not list(tmp_path.iterdir())


def test_heads_come_in_groups(tmp_path: Path) -> None:
    grouped = write_grouped(tmp_path / "grouped.gguf")
    with pytest.raises(UsageError, match="groups of 2"):
        widen.widen(grouped, tmp_path / "w.gguf", heads=5)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    other = tiny.write_gemma3_swa(tmp_path / "gemma.gguf")
    with pytest.raises(UsageError, match="not gemma3"):
        widen.widen(other, tmp_path / "w.gguf")


@pytest.mark.slow
def test_the_default_model_writes_the_same_text(q4_0_path: Path, tmp_path: Path) -> None:
    """In its own format: three groups of heads become four, and quantizing again loses nothing.

    Up to near-ties: where llama.cpp leaves the weights as they are in the file, the width of a row
    decides in which order it is summed.
    """
    widen.widen(q4_0_path, tmp_path / "w.gguf", heads=12, ff=2048, type_name="Q4_0")
    text = greedy(q4_0_path, 32)
    with Model(tmp_path / "w.gguf") as model, Context(model, n_ctx=256) as context:
        sequence = KVSequence(context)
        *prompt, last = model.vocab.tokenize(PROMPT)
        sequence.prefill(prompt)
        for before, token in zip([last, *text], text, strict=False):
            logits = sequence.score([before])[0]
            assert logits[token] > logits.max() - NEAR
