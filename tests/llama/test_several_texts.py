"""Several texts and their trees in one pass: each as if it were alone, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trees import PATHS, random_path, random_tree

from spec_cpu.draft.tree import TokenTree
from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence, score_trees

TEXTS = 3
ROOM = 2_000  # cells: none of the talks below runs out of them
MOST = 60  # tokens of a text


@pytest.fixture(scope="module")
def path(models: Path) -> Path:
    return tiny.write_llama(models / "bits.gguf", n_vocab=32, n_layer=2, scale=3, dtype="Q4_0")


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[Alone]:
    with Model(path) as model, Context(model, n_ctx=128, threads=1) as context:
        yield Alone(KVSequence(context))


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[Model]:
    with Model(path) as model:
        yield model


class Alone:
    """What single steps say in a context of one sequence."""

    def __init__(self, sequence: KVSequence) -> None:
        self._sequence = sequence
        self._known: dict[tuple[int, ...], Rows] = {}

    def row(self, text: list[int]) -> Rows:
        """The logits after `text`."""
        key = tuple(text)
        if key not in self._known:
            self._sequence.context.clear()
            sequence = KVSequence(self._sequence.context)
            for token in text:
                row = sequence.score([token])[0]
            self._known[key] = row.copy()
        return self._known[key]

    def rows(self, text: list[int], tree: TokenTree) -> Rows:
        """The logits after `text`, which ends with the root, and after each node."""
        paths = [[], *(tree.path(node) for node in range(len(tree)))]
        return np.stack([self.row([*text, *(tree.tokens[i] for i in path)]) for path in paths])


@contextmanager
def texts_of(model: Model, n_ctx: int = ROOM, texts: int = TEXTS) -> Iterator[list[KVSequence]]:
    with Context(
        model, n_ctx=n_ctx, n_seq=texts * PATHS, threads=1, parks=True, max_outputs=64
    ) as context:
        yield [
            KVSequence(context, first, range(first + 1, first + PATHS))
            for first in range(0, texts * PATHS, PATHS)
        ]


STEPS = ("score", "score", "score", "feed", "truncate", "share", "move", "fail")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_whatever_was_done_each_text_is_as_if_it_were_alone(
    model: Model, alone: Alone, steps: list[str], seed: int
) -> None:
    """Law: the rows of a pass for many are those of each alone, after any steps before it."""
    rng = np.random.default_rng(seed)
    with texts_of(model) as sequences:
        context = sequences[0].context
        for step in (*steps, "score"):
            one, other = (sequences[i] for i in rng.permutation(TEXTS)[:2])
            held = [list(sequence.tokens) for sequence in sequences]
            mine = held[sequences.index(one)]
            taken = context.taken
            if step == "score":
                assert_scored_as_alone(sequences, alone, rng)
                continue
            if step == "feed":
                new = rng.integers(3, 32, rng.integers(1, 5)).tolist()
                one.prefill(new)
                mine += new
                taken += len(new)
            elif step == "truncate":
                n = int(rng.integers(0, len(mine) + 1))
                one.truncate(n)
                del mine[n:]
            elif step == "share":
                n = int(rng.integers(0, len(other) + 1))
                one.share(other, n)
                mine[:] = other.tokens[:n]
            elif step == "move":
                saved = [sequence.state() for sequence in sequences]
                context.clear()
                assert context.taken == 0
                for sequence, state, tokens in zip(sequences, saved, held, strict=True):
                    assert sequence.set_state(state, tokens)
                taken = sum(map(len, held))
            elif step == "fail":
                trees = [(sequence, 5, *wide()) for sequence in sequences]
                with pytest.raises(ContextError):
                    score_trees(trees)
            assert [sequence.tokens for sequence in sequences] == held
            assert context.taken == taken


def wide() -> tuple[list[int], list[int]]:
    """A tree of which there is no room for two in a pass."""
    return [4] * 30, [-1, *range(24), 0, 1, 2, 3, 4][:30]


def assert_scored_as_alone(
    sequences: list[KVSequence], alone: Alone, rng: np.random.Generator
) -> None:
    """Score trees of some of the texts, keep a path of each, and compare all rows."""
    chosen = [
        sequence for sequence in sequences if len(sequence) < MOST and rng.random() < 0.8
    ] or sequences[:1]
    trees = [random_tree(rng, most=8) for _ in chosen]
    roots = rng.integers(3, 32, len(chosen)).tolist()
    before = [list(sequence.tokens) for sequence in chosen]
    taken = chosen[0].context.taken
    parts = score_trees(
        [
            (sequence, root, tree.tokens, tree.parents)
            for sequence, root, tree in zip(chosen, roots, trees, strict=True)
        ]
    )
    assert chosen[0].context.taken == taken + sum(1 + len(tree) for tree in trees)
    parts = [rows.copy() for rows in parts]
    for sequence, root, tree, text, rows in zip(chosen, roots, trees, before, parts, strict=True):
        np.testing.assert_array_equal(rows, alone.rows([*text, root], tree))
        path = random_path(rng, tree)
        sequence.keep(path)
        assert sequence.tokens == [*text, root, *(tree.tokens[node] for node in path)]


def test_a_full_context_says_so_and_nothing_is_lost(model: Model, alone: Alone) -> None:
    """Cells of what was forgotten are not used again, until all is cleared."""
    with texts_of(model, n_ctx=256) as sequences:
        context = sequences[0].context
        tree = TokenTree([7, 8, 9], parents=[-1, -1, 1])
        for sequence in sequences:
            sequence.prefill([4, 5, 6])
        while context.taken + 4 * TEXTS <= 256:
            score_trees([(one, 5, tree.tokens, tree.parents) for one in sequences])
            for one in sequences:
                one.keep([0])
        held = [list(sequence.tokens) for sequence in sequences]
        for _ in range(2):
            with pytest.raises(ContextError, match="raise `ctx`"):
                score_trees([(one, 5, tree.tokens, tree.parents) for one in sequences])
        assert [sequence.tokens for sequence in sequences] == held
        saved = [sequence.state() for sequence in sequences]
        context.clear()
        for sequence, state, tokens in zip(sequences, saved, held, strict=True):
            assert sequence.set_state(state, tokens)
        parts = score_trees([(one, 5, tree.tokens, tree.parents) for one in sequences])
        for text, rows in zip(held, parts, strict=True):
            np.testing.assert_array_equal(rows, alone.rows([*text, 5], tree))


def test_too_many_paths_are_refused_and_change_nothing(model: Model, alone: Alone) -> None:
    """The trees of others in the same pass are not half placed."""
    with texts_of(model) as sequences:
        for sequence in sequences:
            sequence.prefill([4, 5, 6])
        tree = TokenTree([7, 8, 9], parents=[-1, -1, 1])
        many = [7] * (PATHS + 1), [-1] * (PATHS + 1)
        with pytest.raises(ContextError, match="paths"):
            score_trees([(sequences[0], 3, tree.tokens, tree.parents), (sequences[1], 3, *many)])
        for text in ([4, 5, 6], [4, 5, 6, 3, 8, 9]):
            assert sequences[0].tokens == text
            (rows,) = score_trees([(sequences[0], 3, tree.tokens, tree.parents)])
            np.testing.assert_array_equal(rows, alone.rows([*text, 3], tree))
            sequences[0].keep([1, 2])


@pytest.mark.parametrize("n", [0, 3, 6])
def test_of_a_memory_that_cannot_be_rolled_back_no_part_is_shared(tmp_path: Path, n: int) -> None:
    path = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=32)
    with (
        Model(path) as model,
        texts_of(model, texts=2) as (one, other),
        Context(model, n_ctx=64, threads=1) as context,
    ):
        one.prefill([4, 5, 6, 7, 8, 9])
        other.share(one, n)
        assert other.tokens == ([4, 5, 6, 7, 8, 9] if n == 6 else [])
        row = other.score([3])[0].copy()
        alone = KVSequence(context)
        alone.prefill(other.tokens[:-1])
        np.testing.assert_allclose(row, alone.score([3])[0], rtol=0, atol=1e-3)
        assert len(one) == 6
