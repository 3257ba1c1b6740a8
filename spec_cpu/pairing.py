"""Which models a person asked for: what target, draft and pair mean together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spec_cpu import defaults
from spec_cpu.draft.names import Drafts, read_drafts
from spec_cpu.errors import UsageError

NO_DRAFT = "none"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models to load, as names or files, and what to say about the choice."""

    target: str | Path
    drafts: Drafts
    notice: str | None = None


def choose_models(
    target: str | Path | None, draft: str | Path | Drafts | None, pair: str | None
) -> ModelChoice:
    """The models that are meant; None: not given.

    A target alone drafts from the text itself. A pair, by default the one that needs no model hub,
    drafts with its own draft and from the text, unless another draft is given.

    Raises:
        UsageError: a pair beside a target, no such pair, or no drafts that
            make sense.
        CatalogError: the catalogue cannot be read.
    """
    if pair is not None and target is not None:
        raise UsageError("`pair` names the target already: give `pair` or `target`, not both")
    drafts = _drafts(draft)
    if target is None:
        from spec_cpu.models.catalog import load_catalog

        chosen = load_catalog().pair(defaults.PAIR if pair is None else pair)
        # What is looked up beside the pair's draft costs next to nothing.
        both = Drafts(chosen.draft, ngram=True)
        return ModelChoice(chosen.target, both if draft is None else drafts)
    if draft is None:
        return ModelChoice(
            target,
            Drafts(ngram=True),
            "guessing from the text itself: give `draft` a small GGUF of the same family to guess "
            "with a model (`spec-cpu models list` shows pairs)",
        )
    return ModelChoice(target, drafts)


def _drafts(draft: str | Path | Drafts | None) -> Drafts:
    if isinstance(draft, Drafts):
        return draft
    if draft == NO_DRAFT:
        return Drafts()
    drafts = read_drafts(draft)
    if drafts.model == NO_DRAFT:
        raise UsageError(f"`draft` {NO_DRAFT} guesses nothing: give it alone, not as {draft!r}")
    return drafts
