"""Where a training stands: the file that it goes on from after it was stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spec_cpu.cache import replacing
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.train.held_out import Acceptance


@dataclass(frozen=True, slots=True)
class Best:
    """The weights that did best so far, the step after which, and how they did."""

    step: int
    acceptance: Acceptance
    weights: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The file of one training.

    Attributes:
        made_with: what a training has to agree in with the file to go on from it.
    """

    file: Path
    made_with: dict[str, Any]

    def write(
        self, net: nn.Module, optimizer: torch.optim.Optimizer, step: int, best: Best | None
    ) -> None:
        """Write it in one step. Raises SpecCpuError where that fails; the last one stays then."""
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "best": None
            if best is None
            else (best.step, best.acceptance.greedy, best.acceptance.overlap, best.weights),
            **self.made_with,
        }
        try:
            with replacing(self.file) as part:
                torch.save(state, part)
        except (OSError, RuntimeError) as error:
            raise SpecCpuError(f"cannot write {self.file}: {error}") from None

    def read(
        self, net: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[int, Best | None] | None:
        """Bring `net` and `optimizer` to where the training stood, if it was stopped.

        Returns:
            The steps that are done, and the best so far; None: it was not begun.

        Raises:
            UsageError: the file is damaged, or of other data or settings.
        """
        if not self.file.exists():
            return None
        try:
            state = torch.load(self.file, weights_only=True)
            mine = {name: state[name] for name in self.made_with} == self.made_with
        except Exception:  # whatever pickle, zip or torch make of a damaged file
            raise UsageError(f"{self.file} is damaged: delete it, and train again") from None
        if not mine:
            raise UsageError(
                f"{self.file} was trained with other data or settings: give those again, or "
                "delete it"
            )
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        if state["best"] is None:
            return state["step"], None
        step, greedy, overlap, weights = state["best"]
        return state["step"], Best(step, Acceptance(greedy, overlap), weights)
