"""Tiny Medusa heads for the models of `tiny`, written in a few milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spec_cpu.heads.identity import HeadTarget
from spec_cpu.heads.medusa import MedusaWeights, write_medusa
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import find_tensor

ACCURACY = ((0.5, 0.3, 0.1, 0.05), (0.4, 0.2, 0.1, 0.05), (0.3, 0.1, 0.05, 0.02))


def write_heads(path: Path, target: Path, **how: Any) -> Path:
    """Write random heads for a `tiny.write_llama` model, and return their path.

    Args:
        how: for `medusa_weights` or `write_medusa`.
    """
    own = {name: how.pop(name) for name in ("tokens", "accuracy", "seed") if name in how}
    with Model(target) as model:
        write_medusa(path, medusa_weights(target, **own), HeadTarget.of(model), **how)
    return path


def medusa_weights(
    target: Path,
    *,
    tokens: Sequence[int] | None = None,
    accuracy: Sequence[Sequence[float]] = ACCURACY,
    seed: int = 0,
) -> MedusaWeights:
    """Blocks of noise before the target's own output.

    Args:
        tokens: that they can draft; default: all.
    """
    rng = np.random.default_rng(seed)
    output = find_tensor(target, "output.weight")
    n_vocab, n = output.shape
    kept = np.arange(n_vocab) if tokens is None else np.array(tokens)
    k = len(accuracy)
    return MedusaWeights(
        tokens=kept.astype(np.int32),
        scale=rng.uniform(0.5, 2.0, n).astype(np.float32),
        blocks=(rng.standard_normal((k, n, n)) * n**-0.5).astype(np.float32),
        bias=rng.standard_normal((k, n)).astype(np.float32),
        output=output.rows(kept),
        output_norm=rng.uniform(0.5, 2.0, n).astype(np.float32),
        norm_eps=1e-5,
        accuracy=np.array(accuracy, np.float32),
    )
