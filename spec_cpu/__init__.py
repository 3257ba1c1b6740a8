"""The same answers as your GGUF model, faster, on a CPU.

    load            a model, and what guesses for it: a `Session`
    Session         a conversation: `generate` gives an answer as it comes, `answer` as one text
    SamplingParams  temperature, top-k and the like
    Stats           what an answer took: `Session.stats`, and of all answers `Session.total`
    SpecCpuError    whatever a person can act on; a `UsageError` was asked for wrongly

`help(spec_cpu.load)` and `help(spec_cpu.Session)` say more; the rest are types that these have.

import spec_cpu

with spec_cpu.load("big.gguf", "tiny.gguf") as session:
    for step in session.generate("Why is the sky blue?", max_tokens=64):
        print(step.text, end="", flush=True)
    print(session.stats)

    print(session.answer("And at sunset?", sampling=spec_cpu.SamplingParams(temperature=0)))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_cpu.answer.plain import PlainTime as PlainTime
    from spec_cpu.answer.stats import SourceStats as SourceStats
    from spec_cpu.answer.stats import Stats as Stats
    from spec_cpu.answer.steps import Finish as Finish
    from spec_cpu.answer.steps import Step as Step
    from spec_cpu.costs.acceptance import Acceptance as Acceptance
    from spec_cpu.costs.costs import Costs as Costs
    from spec_cpu.cycle.decode import Cycle as Cycle
    from spec_cpu.cycle.decode import Seconds as Seconds
    from spec_cpu.cycle.drafting import Part as Part
    from spec_cpu.draft.base import Shape as Shape
    from spec_cpu.draft.base import Source as Source
    from spec_cpu.draft.names import Drafts as Drafts
    from spec_cpu.draft.tree import TokenTree as TokenTree
    from spec_cpu.errors import BusyError as BusyError
    from spec_cpu.errors import CatalogError as CatalogError
    from spec_cpu.errors import ContextError as ContextError
    from spec_cpu.errors import KernelsError as KernelsError
    from spec_cpu.errors import LogitsError as LogitsError
    from spec_cpu.errors import MemoryFileError as MemoryFileError
    from spec_cpu.errors import ModelError as ModelError
    from spec_cpu.errors import RemoteError as RemoteError
    from spec_cpu.errors import SpecCpuError as SpecCpuError
    from spec_cpu.errors import UsageError as UsageError
    from spec_cpu.errors import VocabularyMismatchError as VocabularyMismatchError
    from spec_cpu.llama.chat import Message as Message
    from spec_cpu.llama.model import Model as Model
    from spec_cpu.llama.model import ModelInfo as ModelInfo
    from spec_cpu.loading import load as load
    from spec_cpu.progress import Progress as Progress
    from spec_cpu.sampling.logprobs import Logprobs as Logprobs
    from spec_cpu.sampling.pipeline import SamplingParams as SamplingParams
    from spec_cpu.session import Session as Session
    from spec_cpu.text.rendering import Rendered as Rendered
    from spec_cpu.text.streaming import Origin as Origin
    from spec_cpu.text.streaming import Piece as Piece

__version__ = "0.1.0"
__all__ = [
    "Acceptance",
    "BusyError",
    "CatalogError",
    "ContextError",
    "Costs",
    "Cycle",
    "Drafts",
    "Finish",
    "KernelsError",
    "LogitsError",
    "Logprobs",
    "MemoryFileError",
    "Message",
    "Model",
    "ModelError",
    "ModelInfo",
    "Origin",
    "Part",
    "Piece",
    "PlainTime",
    "Progress",
    "RemoteError",
    "Rendered",
    "SamplingParams",
    "Seconds",
    "Session",
    "Shape",
    "Source",
    "SourceStats",
    "SpecCpuError",
    "Stats",
    "Step",
    "TokenTree",
    "UsageError",
    "VocabularyMismatchError",
    "load",
]

_HOMES = {
    "answer.plain": ("PlainTime",),
    "answer.stats": ("SourceStats", "Stats"),
    "answer.steps": ("Finish", "Step"),
    "costs.acceptance": ("Acceptance",),
    "costs.costs": ("Costs",),
    "cycle.decode": ("Cycle", "Seconds"),
    "cycle.drafting": ("Part",),
    "draft.base": ("Shape", "Source"),
    "draft.names": ("Drafts",),
    "draft.tree": ("TokenTree",),
    "errors": (
        "BusyError",
        "CatalogError",
        "ContextError",
        "KernelsError",
        "LogitsError",
        "MemoryFileError",
        "ModelError",
        "RemoteError",
        "SpecCpuError",
        "UsageError",
        "VocabularyMismatchError",
    ),
    "llama.chat": ("Message",),
    "llama.model": ("Model", "ModelInfo"),
    "loading": ("load",),
    "progress": ("Progress",),
    "sampling.logprobs": ("Logprobs",),
    "sampling.pipeline": ("SamplingParams",),
    "session": ("Session",),
    "text.rendering": ("Rendered",),
    "text.streaming": ("Origin", "Piece"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # On first use: `import spec_cpu` must not wait for llama.cpp.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"spec_cpu.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
