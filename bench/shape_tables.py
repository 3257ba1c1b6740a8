"""The tables of `bench/shapes.py`: what was measured, and what the formulas make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from shape_cells import ENGINES, OURS, STOCK, Cell, RandomModel

from spec_cpu.costs import theory
from spec_cpu.machine import hardware

WIDTHS = tuple(range(1, 10))
SHORT_PROMPT, LONG_PROMPT = 256, 2000
ALPHAS = (0.6, 0.7, 0.8)  # assumed: random weights accept nothing


def tables(models: Sequence[RandomModel], folder: Path) -> list[str]:
    """Two tables in Markdown: what was measured, and what the formulas make of it."""
    header = ["model", "kernels", "a step", "tok/s", *(f"V({n})" for n in WIDTHS[1:]), "c"]
    header += [f"prompt of {n:,}" for n in (SHORT_PROMPT, LONG_PROMPT)] + [
        "memory (at most)",
        "load",
    ]
    machine_line = f"{hardware.processor()}, {folder.name}, {hardware.threads(None)} threads"
    lines = [machine_line, "", *head(header)]
    for model in models:
        for name in ENGINES:
            cell = Cell.read(folder, model, name)
            if cell.rounds:
                lines.append(
                    row([model.name, name, *measured(cell, step_of_draft(folder, model, name))])
                )
    header = ["target and draft", "kernels"]
    header += [f"acceptance {alpha} (assumed)" for alpha in ALPHAS]
    lines += ["", *head(header)]
    for model in models:
        stock = Cell.read(folder, model, STOCK)
        for name in (OURS, STOCK):
            cell = Cell.read(folder, model, name)
            if model.draft is not None and cell.rounds and stock.rounds:
                pair = f"{model.name}, {model.draft.shape}"
                lines.append(row([pair, name, *expected(cell, stock)]))
    return lines


def head(cells: Sequence[str]) -> list[str]:
    return [row(cells), row(["---"] * len(cells))]


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def step_of_draft(folder: Path, model: RandomModel, engine: str) -> float:
    """Seconds of a step of the model's draft: beside the target, or alone where that is unknown."""
    step = Cell.read(folder, model, engine).draft_step
    if model.draft is None or not math.isnan(step):
        return step
    return Cell.read(folder, model.draft, engine).passes(1)


def measured(cell: Cell, draft_step: float) -> list[str]:
    step = cell.passes(1)
    return [
        f"{1e3 * step:.1f} ms",
        f"{1 / step:.1f}",
        *(f"{cell.passes(n) / step:.2f}" for n in WIDTHS[1:]),
        number(draft_step / step, ".3f"),
        *(number(n / cell.prompt(n), ".0f", " tok/s") for n in (SHORT_PROMPT, LONG_PROMPT)),
        f"{number(cell.memory / 1e9, '.2f')} ({cell.peak / 1e9:.2f}) GB",
        f"{cell.load:.1f} s",
    ]


def number(value: float, spec: str, unit: str = "") -> str:
    """A number as a cell has it; a dash where it was not measured."""
    return "-" if math.isnan(value) else f"{value:{spec}}{unit}"


def expected(cell: Cell, stock: Cell) -> list[str]:
    """For each of `ALPHAS` the best k and its speedup over the same kernels' plain decoding; and
    over llama.cpp's.
    """
    plain = cell.passes(1)
    costs = [cell.passes(n) / plain for n in WIDTHS]
    c, gain = cell.draft_step / plain, stock.passes(1) / plain
    texts = []
    for alpha in ALPHAS:
        k = int(theory.best_k(alpha, c, len(WIDTHS) - 1, lambda n: np.interp(n, WIDTHS, costs)))
        speedup = float(theory.speedup(alpha, k, c, lambda n: np.interp(n, WIDTHS, costs)))
        texts.append(f"k = {k}: {speedup:.2f}, over llama.cpp {speedup * gain:.2f}")
    return texts
