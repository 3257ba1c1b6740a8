"""From the names of a target and its drafts to an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from spec_cpu import defaults
from spec_cpu.answer.participants import policy_for
from spec_cpu.costs.cache import known_or_measured
from spec_cpu.costs.costs import Costs
from spec_cpu.cycle.drafting import Decides
from spec_cpu.cycle.pinned import Pinned
from spec_cpu.cycle.prefill import neutral, read_prompt
from spec_cpu.draft.base import Source
from spec_cpu.draft.names import Drafts
from spec_cpu.errors import UsageError
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.machine import hardware
from spec_cpu.pairing import choose_models
from spec_cpu.parts import Parts, context_size, load_parts
from spec_cpu.progress import Progress, of_seconds
from spec_cpu.sampling.pipeline import Pipeline, SamplingParams
from spec_cpu.serve.engine.answer import Settings
from spec_cpu.serve.engine.batching import BatchingEngine
from spec_cpu.serve.engine.cells import Cells
from spec_cpu.serve.engine.slots import KeptTexts, Slot, Slots

_ROWS = defaults.MAX_TREE_NODES  # drafted for a conversation in a pass, at most


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _in_a_thread_that_ends(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have `function` run in a thread that is gone when it returns.

    GNU OpenMP gives each thread that computes a team of its own, and keeps it as long as that
    thread. Where all teams together have more threads than there are processors, all of them go to
    sleep each time they wait for each other, some hundred times a pass: a pass of a small model
    takes six times as long. What the caller's thread computed must not stay beside the engine's.
    """

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(function, *args, **kwargs).result()

    return run


@_in_a_thread_that_ends
def load_engine(
    target: str | Path | None = None,
    draft: str | Path | Drafts | None = None,
    *,
    pair: str | None = None,
    ctx: int | None = None,
    draft_ctx: int | None = None,
    threads: int | None = None,
    k: int | None = None,
    shape: str = defaults.SHAPE,
    lookup: Sequence[Path] = (),
    kernels: str = defaults.KERNELS,
    rpc: str | Sequence[str] | None = (),
    recalibrate: bool = False,
    slots: int | None = None,
    queue: int = defaults.QUEUE,
    max_gap: float = defaults.MAX_GAP / 1000.0,
    cache_ram: int = defaults.CACHE_RAM,
    shared_memory: bool = False,
    progress: Progress | None = None,
) -> tuple[BatchingEngine, list[str]]:
    """Load a target and what drafts for it, to answer many requests at a time.

    Args:
        ctx: tokens that one conversation may have.
        slots: conversations at a time; default: as many as memory has room for, at most 8.
        queue: requests that may wait for a slot.
        max_gap: seconds that prompts of others may keep an answer under way waiting.
        cache_ram: MiB for beginnings of texts that had to make room in the cache.
        shared_memory: may be drafted for one client what another one wrote?

        The others: as for `spec_cpu.load`.

    Returns:
        The engine, and what a person should know.

    Raises:
        As `spec_cpu.load`.
    """
    choice = choose_models(target, draft, pair)
    chosen = Kernels(kernels, threads=threads, fresh=recalibrate, progress=progress)
    parts = load_parts(
        choice.target,
        choice.drafts,
        chosen,
        lookup=lookup,
        shape="tree",
        draft_ctx=draft_ctx,
        rpc=rpc,
        progress=progress,
    )
    try:
        ctx = context_size(parts.target, ctx, parts.notices)
        n = _slots(parts, ctx, slots)
        if k is not None and n * (1 + k) > defaults.BATCH:
            raise UsageError(
                f"`k` must be at most {defaults.BATCH // n - 1} with {n} `slots`, not {k}: "
                f"a pass has up to {defaults.BATCH} tokens"
            )
        # As many at least as one text has: of so many rows of a prompt a head gets the features.
        rows = max(n * (1 + (_ROWS if k is None else k)), defaults.MAX_DRAFT_TOKENS + 1)
        context = parts.context(n * ctx + rows, threads, texts=n, max_outputs=rows)
        cells = Cells(context, n, parts.paths)
        rooms = [
            Slot(sequence, parts.sources(context, ctx, remembers=shared_memory))
            for sequence in cells.sequences
        ]
        costs = None
        if rooms[0].sources and k is None:
            costs = _costs(parts, rooms[0].sources, ctx, threads, n, recalibrate, progress)
    except BaseException:
        parts.close()
        raise
    settings = Settings(
        ctx=ctx,
        row_ops=chosen.row_ops,
        policy=_policies(costs, k, parts.paths),
        costs=costs,
        draws=shape in (defaults.SHAPE, "chain"),
    )
    kept = Slots(rooms, cells, KeptTexts(cache_ram * 2**20), forgets=not shared_memory)
    engine = BatchingEngine(parts, cells, kept, settings, queue=queue, max_gap=max_gap)
    return engine, [*filter(None, (choice.notice, *parts.notices, chosen.notice))]


def _slots(parts: Parts, ctx: int, asked: int | None) -> int:
    """As many as were asked for; else what half of the free memory holds, from 1 to 8."""
    if asked is not None:
        most = defaults.MAX_SLOTS
        if not 1 <= asked <= most:
            raise UsageError(f"`slots` must be from 1 to {most}, not {asked}")
        return asked
    remote = parts.target.remote
    free = hardware.available_memory() if remote is None else remote.free_memory
    if free is None:
        return defaults.SLOTS
    return max(1, min(defaults.SLOTS, int(free / 2 / parts.target.kv_bytes(ctx))))


def _costs(
    parts: Parts,
    sources: Sequence[Source],
    ctx: int,
    threads: int | None,
    slots: int,
    recalibrate: bool,
    progress: Progress | None,
) -> Costs:
    """What passes cost here, known or measured, in a context of one text."""
    with parts.context(ctx, threads, max_outputs=slots + _ROWS + 1) as context:
        sequence = KVSequence(context)
        tokens = neutral(parts.target.vocab, min(defaults.PLAN_DEPTH, ctx // 2))
        read_prompt(sequence, tokens, sources)
        passes = next((one.sequence for one in sources if one.sequence is not None), None)
        costs, notice = known_or_measured(
            sequence,
            tokens[-1],
            max_width=slots + _ROWS + 1,
            pipeline=Pipeline(SamplingParams(), parts.kernels.row_ops),
            draft=passes,
            anew=recalibrate,
            progress=of_seconds(progress, "measuring this machine"),
        )
        for source in sources:
            source.forget()
    parts.notices += [notice] if notice else []
    return costs


def _policies(
    costs: Costs | None, k: int | None, paths: int
) -> Callable[[Sequence[Source], bool], Decides]:
    """What makes the policy of an answer."""

    def policy(sources: Sequence[Source], repeatable: bool) -> Decides:
        if costs is None or not sources:
            return Pinned(k or 0)
        return policy_for(sources, costs, paths, repeatable=repeatable)

    return policy
