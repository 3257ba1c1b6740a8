"""Exact speculative decoding for GGUF models on a CPU.

import spec_cpu

with spec_cpu.load(target="big.gguf", draft="tiny.gguf") as session:
    for step in session.generate("Why is the sky blue?", max_tokens=64):
        print(step.text, end="", flush=True)
    print(session.stats.alpha, session.stats.speedup)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spec_cpu.answer.stats import Stats as Stats
    from spec_cpu.answer.steps import Step as Step
    from spec_cpu.errors import SpecCpuError as SpecCpuError
    from spec_cpu.loading import load as load
    from spec_cpu.sampling.pipeline import SamplingParams as SamplingParams
    from spec_cpu.session import Session as Session

__version__ = "0.1.0"
__all__ = ["SamplingParams", "Session", "SpecCpuError", "Stats", "Step", "load"]

_HOMES = {
    "SamplingParams": "sampling.pipeline",
    "Session": "session",
    "SpecCpuError": "errors",
    "Stats": "answer.stats",
    "Step": "answer.steps",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    # On first use: `import spec_cpu` must not wait for llama.cpp.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"spec_cpu.{_HOMES[name]}"), name)
