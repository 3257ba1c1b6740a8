"""Trees of random tokens, what single steps say of them, and cycles where trees may be drafted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from engine import text, to_continue

from spec_cpu.cycle.decode import Cycle, cycles
from spec_cpu.cycle.drafting import Decides, Drafting
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.draft.base import Source
from spec_cpu.draft.tree import ROOT, Paths, TokenTree
from spec_cpu.errors import ContextError
from spec_cpu.llama.context import Context, Rows
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.sampling.pipeline import SamplingParams

# A pass over several tokens adds floats up in another order than single steps do, and the cache,
# which holds half precision, can round a value to its neighbour then. Q4_0 is the same to the bit.
TOLERANCE = {"llama": 0.01, "llama Q4_0": 0.0, "sliding window": 0.01}
PATHS = 6

# What a reference text says after `PROMPT` (see engine), where it does not agree with itself.
FOLLOWS = [[5, 3, 6, 4, 4, 3], [3, 6, 7, 2, 3], [3, 6, 7, 5, 3], [3, 6, 4, 7]]


def leaves(tree: TokenTree) -> int:
    """How many paths lead from the root to a leaf."""
    return len(tree) - len({parent for parent in tree.parents if parent != ROOT})


def descend(tree: TokenTree, tokens: Iterable[int]) -> list[int]:
    """The path that `tokens` follow from the root, as far as it goes."""
    nodes: list[int] = []
    for token in tokens:
        node = tree.child(nodes[-1] if nodes else ROOT, token)
        if node is None:
            break
        nodes.append(node)
    return nodes


@contextmanager
def sequence_of(path: Path, n_ctx: int = 256, paths: int = PATHS) -> Iterator[KVSequence]:
    with (
        Model(path) as model,
        Context(model, n_ctx=n_ctx, n_seq=paths, threads=1) as context,
    ):
        yield KVSequence(context, branches=range(1, paths))


def random_tree(rng: np.random.Generator, most: int = 12) -> TokenTree:
    tree, paths = TokenTree(parents=[]), Paths(PATHS)
    for _ in range(int(rng.integers(0, most + 1))):
        chained = rng.random() < 0.6
        parent = len(tree) - 1 if chained else int(rng.integers(ROOT, len(tree)))
        if paths.extend(parent):
            tree.append(int(rng.integers(3, 32)), None, 0.5, parent)
    return tree


def random_path(rng: np.random.Generator, tree: TokenTree) -> list[int]:
    return tree.path(int(rng.integers(ROOT, len(tree))))


def one_by_one(path: Path, tokens: list[int], tree: TokenTree, root: int) -> Rows:
    """The logits after the root and each node, from single steps in a new context."""
    with sequence_of(path, paths=1) as sequence:
        return rows_of_steps(sequence, tokens, tree, root)


def rows_of_steps(sequence: KVSequence, tokens: list[int], tree: TokenTree, root: int) -> Rows:
    """The logits after the root and each node behind `tokens`, from single steps."""
    rows = []
    for node in range(ROOT, len(tree)):
        text = [*tokens, root, *(tree.tokens[i] for i in tree.path(node))]
        for token in text[sequence.reuse(text[:-1]) :]:
            row = sequence.score([token])[0]
        rows.append(row.copy())
    return np.stack(rows)


def start(
    target: KVSequence,
    drafter: Source | None,
    prompt: list[int],
    *,
    params: SamplingParams,
    rng: np.random.Generator,
    max_tokens: int,
    k: int = 8,
    pause: int | None = None,
    policy: Decides | None = None,
) -> list[Cycle]:
    """Cycles up to `max_tokens`, or until `pause` tokens are there."""
    target.reuse(prompt[:-1])
    target.prefill(prompt[len(target) : -1])
    if drafter:
        drafter.begin(prompt)
    done: list[Cycle] = []
    drafting = Drafting([drafter] if drafter else [], policy or Pinned(k))
    whole = to_continue(target, drafting, prompt, params=params, rng=rng, max_tokens=max_tokens)
    for cycle in cycles(whole):
        done.append(cycle)
        if pause is not None and len(text(done)) >= pause:
            break
    return done


def assert_no_cell_is_lost(
    path: Path, sequence: KVSequence, rng: np.random.Generator, tolerance: float
) -> None:
    """Fill the context up: a cell that nobody needs and nobody freed would be missing."""
    room = sequence.context.n_ctx - len(sequence) - 1
    for token in rng.integers(3, 32, room).tolist():
        sequence.score([token])
    before = list(sequence.tokens)
    last = sequence.score([7]).copy()
    with pytest.raises(ContextError, match="no room"):
        sequence.score([7])
    expected = one_by_one(path, before, TokenTree(parents=[]), 7)[0]
    np.testing.assert_allclose(last[0], expected, rtol=0, atol=tolerance)
