"""Models with the kernels inside llama.cpp: the same text, the same sums, nothing left behind."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import llama_cpp
import numpy as np
import pytest
import tiny
import trees
from numpy.typing import NDArray
from scipy.special import softmax

import spec_cpu
from spec_cpu.defaults import MAX_DRAFT_TOKENS
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import quantize
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import SamplingParams

FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K", "F16", "BF16"]
# What llama.cpp computes between the products is its own: biases, windows, wide and narrow heads.
FAMILIES = {
    "llama": partial(tiny.write_llama, n_head=4),
    "biases": partial(tiny.write_qwen2, n_head=4, n_head_kv=2),
    "heads of 256": partial(tiny.write_llama, n_head=1),
    "sliding windows, heads of 256": partial(tiny.write_gemma3_swa, window=16, n_embd_head=256),
}
OTHERS = [family for family in FAMILIES if family != "llama"]
MODELS = [*product(["llama"], FORMATS), *product(OTHERS, ["Q4_K_M"])]
TOKENS = list(range(260, 284))
WIDEST = MAX_DRAFT_TOKENS + 1  # rows that a pass gives
GREEDY = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def library() -> Path:
    kernels = Kernels("on")
    found = kernels.library_for(Path())
    if found is None:
        pytest.skip(str(kernels.notice))
    return found


def written(path: Path, family: str, *, noise: float = 0.0) -> Path:
    """Wide enough for blocks of 256 columns."""
    write = FAMILIES[family]
    return write(path, n_vocab=320, n_embd=256, n_ff=512, n_layer=2, scale=3, noise=noise)


@pytest.fixture(scope="module")
def original(models: Path) -> Path:
    return written(models / "kernels.gguf", "llama")


@pytest.fixture(scope="module", params=MODELS, ids=" in ".join)
def model_file(request: pytest.FixtureRequest, models: Path) -> Path:
    family, quantization = request.param
    file = models / f"kernels-{family}-{quantization}.gguf"
    quantize(written(models / f"kernels-{family}.gguf", family), file, quantization)
    return file


@pytest.fixture(scope="module", params=FAMILIES)
def relatives(request: pytest.FixtureRequest, models: Path) -> tuple[Path, Path]:
    """A target in Q4_0, and a draft that often guesses right."""
    target = models / f"target-{request.param}.gguf"
    quantize(written(models / f"of-{request.param}.gguf", request.param), target, "Q4_0")
    return target, written(models / f"draft-{request.param}.gguf", request.param, noise=0.05)


@contextmanager
def opened(
    file: Path, library: Path | None, threads: int = 2, paths: int = 1
) -> Iterator[KVSequence]:
    with (
        Model(file, kernels=library) as model,
        Context(model, n_ctx=256, n_seq=paths, threads=threads, max_outputs=WIDEST) as context,
    ):
        yield KVSequence(context, branches=range(1, paths))


def all_rows(sequence: KVSequence, widths: list[int]) -> NDArray[np.float32]:
    """The logits of `TOKENS`, fed in passes of these widths."""
    rows, begin = [], 0
    for width in widths:
        rows.append(sequence.score(TOKENS[begin : begin + width]).copy())
        begin += width
    return np.concatenate(rows)


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_threads_pack_weights_as_are_asked_for(
    original: Path, library: Path, threads: int
) -> None:
    openmp = ctypes.CDLL(str(library))
    usual, seen = openmp.omp_get_max_threads(), set()
    packed = partial(Model, kernels=library, threads=threads)
    with packed(original, progress=lambda _: seen.add(openmp.omp_get_max_threads())):
        assert seen == {threads}
        assert openmp.omp_get_max_threads() == usual, "others keep theirs"


def test_the_sums_are_as_good_as_stock_ones(model_file: Path, library: Path) -> None:
    """Both round activations to 8 bits (or weights' own 16): neither is the exact product."""
    exact_file = model_file.with_stem(f"{model_file.stem}-exact")
    quantize(model_file, exact_file, "F32")
    with opened(exact_file, None) as exact, opened(model_file, None) as stock:
        p, q = next_tokens(exact), next_tokens(stock)
    with opened(model_file, library) as ours:
        r = next_tokens(ours)
    assert not np.array_equal(q, r), "the kernels were not used"
    assert total_variation(p, r) < 1.5 * total_variation(p, q) + 0.002


def next_tokens(sequence: KVSequence) -> NDArray[np.float64]:
    rows: NDArray[np.float64] = softmax(all_rows(sequence, [24]).astype(np.float64), axis=1)
    return rows


def total_variation(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(np.abs(p - q).sum(axis=1).mean() / 2)


def test_a_row_does_not_depend_on_the_others(model_file: Path, library: Path) -> None:
    """Of a pass of any width that drafts may have, nor on how the text before it was fed."""
    text = [260 + i % 60 for i in range(2 * WIDEST)]
    with opened(model_file, library) as together, opened(model_file, library, 1) as alone:
        expected = np.concatenate([alone.score([token]).copy() for token in text])
        for width in range(1, WIDEST + 1):
            np.testing.assert_array_equal(together.score(text[:width]), expected[:width])
            together.truncate(0)
        together.prefill(text[:-1])
        np.testing.assert_array_equal(together.score(text[-1:]), expected[-1:])


def test_a_row_does_not_depend_on_the_number_of_threads(model_file: Path, library: Path) -> None:
    """It changes from pass to pass while other programs are busy; long contexts are split up."""
    text, rows = [260 + i % 60 for i in range(606)], []
    with Model(model_file, kernels=library) as model:
        for threads in (1, 2, 3):
            with Context(model, n_ctx=1024, threads=threads) as context:
                sequence = KVSequence(context)
                sequence.prefill(text[:600])
                passes = [sequence.score(text[n:m]).copy() for n, m in ((600, 601), (601, 606))]
                rows.append(np.concatenate(passes))
    np.testing.assert_array_equal(rows[1], rows[0])
    np.testing.assert_array_equal(rows[2], rows[0])


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_speculation_writes_the_text_of_plain_decoding(
    model_file: Path, tiny_draft: Path, library: Path, shape: str
) -> None:
    texts = []
    for draft, k in (("none", None), (tiny_draft, 3), (tiny_draft, 31), (tiny_draft, 64)):
        with spec_cpu.load(
            model_file, draft, k=k, shape=shape, kernels="on", sampling=GREEDY
        ) as session:
            assert session.kernels == library.parent.name
            steps = session.generate("a tale", max_tokens=64, raw=True, ignore_eos=True)
            texts.append("".join(step.text for step in steps))
    assert len(set(texts)) == 1


@pytest.mark.parametrize("kernels", ["on", "off"])
def test_trees_and_chains_write_the_text_of_plain_decoding(
    relatives: tuple[Path, Path], library: Path, kernels: str
) -> None:
    """Where drafts are accepted: what is behind a rejected branch is what single steps left."""
    target, draft = relatives
    texts, branched = set(), {}
    for source, shape in (("none", "chain"), (draft, "chain"), (draft, "tree")):
        with spec_cpu.load(
            target, source, k=6, shape=shape, kernels=kernels, sampling=GREEDY, threads=1
        ) as session:
            texts.add(session.answer("a tale", max_tokens=120, raw=True, ignore_eos=True))
            stats = session.stats
            assert stats.accepted > 20 or source == "none"
            assert session.kernels == (library.parent.name if kernels == "on" else "stock")
            branched[shape] = stats.branched
    assert len(texts) == 1
    assert branched["chain"] == 0
    assert branched["tree"] > 5


def test_every_nodes_row_is_that_of_single_steps(model_file: Path, library: Path) -> None:
    """To the bit, behind a text that was itself fed as trees and is longer than a window."""
    rng = np.random.default_rng(4)
    with (
        opened(model_file, library, paths=trees.PATHS) as together,
        opened(model_file, library) as alone,
    ):
        together.prefill(TOKENS)
        for _ in range(4):
            tree, root = trees.random_tree(rng), int(rng.integers(260, 290))
            before = list(together.tokens)
            rows = together.score_tree(root, tree.tokens, tree.parents).copy()
            single = trees.rows_of_steps(alone, before, tree, root)
            np.testing.assert_array_equal(rows, single)
            together.keep(trees.random_path(rng, tree))


def test_rows_that_do_not_fill_a_group_stay_with_llama_cpp(models: Path, library: Path) -> None:
    file = tiny.write_llama(models / "odd.gguf", n_vocab=317, n_embd=64, n_ff=72, dtype="F16")
    with opened(file, None) as stock, opened(file, library) as ours:
        np.testing.assert_allclose(all_rows(ours, [24]), all_rows(stock, [24]), atol=0.05)


def test_a_split_model(models: Path, library: Path) -> None:
    whole = tiny.write_llama(models / "whole.gguf", n_vocab=320, n_embd=64, dtype="F16")
    split = tiny.write_llama(models / "parts.gguf", n_vocab=320, n_embd=64, dtype="F16", split=True)
    with opened(whole, library) as one, opened(split, library) as other:
        np.testing.assert_array_equal(all_rows(one, [24]), all_rows(other, [24]))


def test_weights_that_are_not_mapped_stay_as_they_are(original: Path, library: Path) -> None:
    file = original.with_stem("unmapped")
    quantize(original, file, "Q4_0")
    default = llama_cpp.llama_model_default_params

    def unmapped() -> llama_cpp.llama_model_params:
        params = default()
        params.use_mmap = False
        return params

    with patch.object(llama_cpp, "llama_model_default_params", unmapped):
        with opened(file, library) as ours:
            rows = all_rows(ours, [24])
        with opened(file, None) as stock:
            np.testing.assert_allclose(rows, all_rows(stock, [24]), atol=0.5)


def test_a_model_lives_on_when_another_is_freed(model_file: Path, library: Path) -> None:
    with opened(model_file, library) as first:
        before = all_rows(first, [24])
        with opened(model_file, library) as second:
            np.testing.assert_array_equal(all_rows(second, [24]), before)
        first.truncate(0)
        np.testing.assert_array_equal(all_rows(first, [24]), before)


def test_loading_and_freeing_leaves_nothing_behind(original: Path, library: Path) -> None:
    file = original.with_stem("often")
    quantize(original, file, "Q8_0")
    for _ in range(10):
        load_and_use(file, library)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50):
        load_and_use(file, library)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 5 * file.stat().st_size


def load_and_use(file: Path, library: Path) -> None:
    with opened(file, library) as sequence:
        sequence.score(TOKENS)


def test_nothing_is_packed_for_a_model_loaded_without(original: Path, library: Path) -> None:
    with opened(original, None) as before:
        expected = all_rows(before, [24])
    with opened(original, library), opened(original, None) as after:
        np.testing.assert_array_equal(all_rows(after, [24]), expected)
