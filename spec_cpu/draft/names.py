"""Which drafts a person asked for: what the draft "ngram,tiny.gguf" names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from spec_cpu import defaults
from spec_cpu.errors import UsageError


@dataclass(frozen=True, slots=True)
class Drafts:
    """The sources to make, which propose the tokens of one tree a cycle.

    Attributes:
        model: a GGUF file or a catalogue name.
        ngram: look drafts up in the text itself, and in what the target held for likely before.
    """

    model: str | Path | None = None
    ngram: bool = False

    def __bool__(self) -> bool:
        return self.ngram or self.model is not None


def read_drafts(draft: str | Path | None) -> Drafts:
    """The drafts that `draft` names, with commas between; a `Path` is always one file.

    Raises:
        UsageError: one named twice, two models, or an empty name.
    """
    if draft is None or isinstance(draft, Path) or _is_file(draft):
        return Drafts(draft)
    names = [name.strip() for name in draft.split(",")]
    if not all(names):
        raise UsageError(
            f"`draft` {draft!r} has an empty name: give a GGUF file or a catalogue name, "
            f"{defaults.NGRAM}, or both with a comma between"
        )
    models = [name for name in names if name != defaults.NGRAM]
    lookups = len(names) - len(models)
    if _is_file(",".join(models)):  # it may have commas in its name
        models = [",".join(models)]
    if lookups > 1:
        raise UsageError(f"`draft` names {defaults.NGRAM} {lookups} times: once is enough")
    if len(models) > 1:
        raise UsageError(
            f"one draft model at a time, not {' and '.join(models)}: it may have "
            f"{defaults.NGRAM} beside it"
        )
    return Drafts(models[0] if models else None, bool(lookups))


def _is_file(name: str) -> bool:
    return os.path.isfile(os.path.expanduser(name))
