"""Trees through llama.cpp: the logits of every node, and what the cache holds afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from engine import FAMILIES, fresh_logits
from trees import (
    TOLERANCE,
    assert_no_cell_is_lost,
    one_by_one,
    random_path,
    random_tree,
    sequence_of,
)

from spec_cpu.draft.tree import ROOT, TokenTree
from spec_cpu.errors import ContextError


@pytest.mark.parametrize("family", FAMILIES)
def test_every_nodes_logits_are_those_of_single_steps(models: Path, family: str) -> None:
    path = FAMILIES[family](models / f"tree-{family}.gguf")
    rng = np.random.default_rng(3)
    text = [tiny.BOS, *(3 + i * 7 % 29 for i in range(40))]
    for _ in range(6):
        with sequence_of(path) as sequence:
            for token in text:
                sequence.score([token])
            tree, root = random_tree(rng), int(rng.integers(3, 32))
            rows = sequence.score_tree(root, tree.tokens, tree.parents).copy()
        single = one_by_one(path, text, tree, root)
        np.testing.assert_allclose(rows, single, rtol=0, atol=TOLERANCE[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_so_are_those_behind_a_text_that_was_fed_as_trees(models: Path, family: str) -> None:
    """Its tokens are in their order in the cache, as if they had been fed one by one."""
    path = FAMILIES[family](models / f"trees-{family}.gguf")
    rng = np.random.default_rng(4)
    with sequence_of(path) as sequence:
        sequence.prefill([tiny.BOS, *(3 + i * 7 % 29 for i in range(30))])
        for _ in range(8):
            tree, root = random_tree(rng), int(rng.integers(3, 32))
            before = list(sequence.tokens)
            rows = sequence.score_tree(root, tree.tokens, tree.parents).copy()
            single = one_by_one(path, before, tree, root)
            np.testing.assert_allclose(rows, single, rtol=0, atol=TOLERANCE[family])
            sequence.keep(random_path(rng, tree))


@pytest.mark.parametrize("family", FAMILIES)
def test_after_1000_cycles_no_stale_cell_is_left(models: Path, family: str) -> None:
    path = FAMILIES[family](models / f"stale-{family}.gguf")
    rng = np.random.default_rng(5)
    n_ctx = 256  # llama.cpp rounds up to this
    with sequence_of(path, n_ctx) as sequence:
        tokens = [tiny.BOS, 5]
        sequence.prefill(tokens)
        branched = 0
        for _ in range(1000):
            if len(sequence) > 230 or rng.random() < 0.05:  # another turn, which begins alike
                sequence.truncate(int(rng.integers(1, len(sequence))))
                tokens = list(sequence.tokens)
            tree, root = random_tree(rng), int(rng.integers(3, 32))
            branched += not tree.is_chain
            sequence.score_tree(root, tree.tokens, tree.parents)
            kept = random_path(rng, tree)
            sequence.keep(kept)
            tokens += [root, *(tree.tokens[node] for node in kept)]
            assert sequence.tokens == tokens
        assert branched > 300
        assert_no_cell_is_lost(path, sequence, rng, TOLERANCE[family])


def test_a_tree_that_does_not_fit_is_refused_and_nothing_changes(models: Path) -> None:
    path = FAMILIES["llama"](models / "fit.gguf")
    star = TokenTree([4, 5, 6], parents=[ROOT] * 3)
    with sequence_of(path, paths=2) as sequence:
        sequence.prefill([tiny.BOS, 5, 6])
        with pytest.raises(ContextError, match="3 paths, but there are 2"):
            sequence.score_tree(7, star.tokens, star.parents)
        with pytest.raises(ContextError, match="rows in one pass"):
            sequence.score_tree(7, [4] * 80, [ROOT, *range(78), 0])
        assert sequence.tokens == [tiny.BOS, 5, 6]
        assert sequence.paths == 2
        sequence.score_tree(7, star.tokens[:2], star.parents[:2])
        sequence.keep([1])
        assert sequence.tokens == [tiny.BOS, 5, 6, 7, 5]
        got = sequence.score([8]).copy()
    np.testing.assert_allclose(got, fresh_logits(path, [tiny.BOS, 5, 6, 7, 5, 8]), atol=1e-3)


def test_a_pass_that_was_interrupted_leaves_nothing(models: Path) -> None:
    """Between a pass and `keep` an answer may be broken off; the next one starts from `reuse`."""
    path = FAMILIES["llama"](models / "broken.gguf")
    with sequence_of(path) as sequence:
        sequence.prefill([tiny.BOS, 5, 6])
        sequence.score_tree(7, [4, 5, 6, 7], [ROOT, ROOT, 0, 1])
        assert sequence.reuse([tiny.BOS, 5, 6, 7, 4]) == 4
        tree = TokenTree([9, 8], parents=[ROOT, ROOT])
        rows = sequence.score_tree(4, tree.tokens, tree.parents).copy()
        expected = one_by_one(path, [tiny.BOS, 5, 6, 7], tree, 4)
        np.testing.assert_allclose(rows, expected, atol=TOLERANCE["llama"])


def test_a_shift_forgets_the_branches(models: Path) -> None:
    path = FAMILIES["llama"](models / "shift.gguf")
    with sequence_of(path) as sequence:
        sequence.prefill([tiny.BOS, *range(3, 13)])
        sequence.score_tree(7, [4, 5], [ROOT, ROOT])
        sequence.keep([1])
        assert sequence.drop(1, 5)
        sequence.score_tree(7, [4, 5], [ROOT, ROOT])
        sequence.keep([0])
        assert sequence.tokens == [tiny.BOS, *range(7, 13), 7, 5, 7, 4]
