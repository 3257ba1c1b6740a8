"""Which pairs of the catalogue fit into this machine, and what to expect of them, from sizes alone.

Nothing is fetched or loaded. A step of a large model reads all of its weights, so that it takes as
long as reading them from memory does. What passes over several tokens cost beside it, and a draft's
step beyond its share of the bytes, is what was measured on models of 7 and 8 billion parameters
(bench/RESULTS.md, "Real sizes"). `plan` measures the very pair, once it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from spec_cpu.costs.acceptance import Acceptance, assumed
from spec_cpu.costs.costs import Costs
from spec_cpu.costs.plan import Plan, make_plan
from spec_cpu.errors import KernelsError
from spec_cpu.kernels.build import find_build
from spec_cpu.machine.hardware import available_memory
from spec_cpu.models.catalog import SHIPPED_HEADS, Catalog, FileSource, Model, load_catalog

_AVX2 = (1.0, 1.08, 1.18, 1.27, 1.44, 1.59, 1.78, 1.93, 2.10)  # V(1), V(2), ...
_AVX512 = (1.0, 1.10, 1.20, 1.26, 1.33, 1.41, 1.47, 1.54, 1.61)
_STOCK = (1.0, 1.67, 2.15, 2.15, 2.66, 3.16, 3.60, 4.42, 4.83)
_STOCK_STEP = 1.48  # of llama.cpp's own kernels, in steps of ours
_DRAFT_STEP = 1.15  # of a smaller model, in what its share of the bytes comes to
_LOADING = 2.0  # of a target's size in memory while it loads
_BESIDE = 1.0e9  # bytes for the context and all else


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a pair is expected to be here.

    Attributes:
        pair: its name in the catalogue.
        size: bytes to download.
        memory: bytes that it needs while it loads. `fits`: are there as many?
        step: seconds that a token takes without a draft.
        plan: what guessing ahead is expected to bring.
        acceptance: that is assumed for it.
    """

    pair: str
    size: int
    memory: int
    fits: bool
    step: float
    plan: Plan
    acceptance: Acceptance


def suggestions(
    memory: float | None = None,
    *,
    speed: float,
    catalog: Catalog | None = None,
    isa: str | None = None,
) -> list[Suggestion]:
    """The pairs of two models, those that fit first, and of these the largest first.

    Args:
        memory: bytes that there are; default: what is free here, or no limit where the system does
            not tell.
        speed: bytes a second that memory gives, see `memory_speed`.
        catalog: default: the usual one.
        isa: instruction set of the kernels, or "none"; default: that of this machine.
    """
    catalog = catalog or load_catalog()
    free = memory if memory is not None else available_memory()
    isa = isa or _isa()
    rates = assumed()
    found = []
    for pair in catalog.pairs.values():
        target, draft = catalog.models[pair.target], catalog.models[pair.draft]
        if not target.bytes or not draft.bytes or _is_shipped_head(draft):
            continue  # a head's acceptance is its own
        needed = int(_LOADING * target.bytes + draft.bytes + _BESIDE)
        costs = estimated(target.bytes, draft.bytes, speed, isa)
        found.append(
            Suggestion(
                pair.name,
                target.bytes + draft.bytes,
                needed,
                free is None or needed <= free,
                costs.passes[0],
                make_plan(costs, len(costs.passes) - 1, rates),
                rates,
            )
        )
    return sorted(found, key=lambda one: (not one.fits, -one.size if one.fits else one.size))


def estimated(target: int, draft: int, speed: float, isa: str) -> Costs:
    """What passes cost, from the sizes of both models in bytes.

    Args:
        speed: bytes a second that memory gives.
        isa: instruction set of the kernels, or "none": llama.cpp's own.
    """
    verify = _STOCK if isa == "none" else _AVX512 if isa.startswith("avx-512") else _AVX2
    slower = _STOCK_STEP if isa == "none" else 1.0
    step = slower * target / speed
    return Costs(
        passes=[step * width for width in verify],
        draft_step=slower * _DRAFT_STEP * draft / speed,
        draft_catch_up=0.0,
        rebuild=0.0,
        row=0.0,
    )


def _is_shipped_head(model: Model) -> bool:
    return isinstance(model.source, FileSource) and model.source.path.parent == SHIPPED_HEADS


def _isa() -> str:
    """The instruction set of the kernels here; "none" where there are no kernels."""
    try:
        return find_build().isa.name
    except KernelsError:
        return "none"
