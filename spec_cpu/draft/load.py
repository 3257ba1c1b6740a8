"""Sources for a target, from what was loaded: contexts of their own, and whether they fit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from spec_cpu import defaults
from spec_cpu.draft.base import WIDTH, Lookup, Passes, Shape
from spec_cpu.draft.lookup.ngram import NgramSource
from spec_cpu.draft.lookup.recycled import RecycledSource
from spec_cpu.draft.passes.eagle import EagleSource
from spec_cpu.draft.passes.medusa import MedusaSource
from spec_cpu.draft.passes.model import MIN_CONTEXT, ModelSource
from spec_cpu.errors import UsageError, VocabularyMismatchError
from spec_cpu.heads.eagle import EagleHead
from spec_cpu.heads.file import Head
from spec_cpu.heads.identity import check_target
from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import find_tensor
from spec_cpu.llama.vocab import check_same_vocabulary
from spec_cpu.sampling.logits import RowOps

# Bytes of a target's weights: in the steps of a smaller one, of less than 8 ms, keeping what they
# say costs as much as it brings.
RECYCLED_FROM = 2**28


def lookup_sources(
    references: Sequence[Sequence[int]], target: Model, row_ops: RowOps, *, remembers: bool
) -> list[Lookup]:
    """The sources that take no passes, for `target`.

    Args:
        references: texts to look things up in, too, as tokens.
        remembers: is what they learn of the texts kept for later runs?
    """
    ngram = NgramSource(references, kept=defaults.MEMORY_TOKENS if remembers else 0)
    if target.info.bytes < RECYCLED_FROM:
        return [ngram]
    return [ngram, RecycledSource(target.vocab.n, row_ops)]


def model_sources(
    draft: Model,
    context: Context,
    ctx: int,
    draft_ctx: int | None,
    shape: Shape,
    notices: list[str],
    *,
    alone: bool,
) -> list[ModelSource]:
    """The source that `draft` makes for the target of `context`; none if it cannot draft for it.

    Args:
        ctx: tokens that the text may have.
        notices: are told why it cannot.
        alone: is it the only draft? Another vocabulary is an error then, and else but a notice.

    Raises:
        VocabularyMismatchError, UsageError, ContextError: as `load`.
    """
    why_not = _why_not(context.model, draft, alone=alone)
    if why_not is not None:
        notices.append(
            f"{why_not}: {'not guessing ahead' if alone else 'guessing from the text itself'}"
        )
        draft.close()
        return []
    tree = shape == "tree"
    small = Context(
        draft,
        n_ctx=_draft_context_size(draft, ctx, draft_ctx),
        n_seq=defaults.TREE_PATHS if tree else 1,
        threads=context.asked_threads,
        max_outputs=WIDTH if tree else 1,
    )
    return [ModelSource(draft, small, n_vocab=context.model.vocab.n, shape=shape)]


def _why_not(target: Model, draft: Model, *, alone: bool) -> str | None:
    """Why `draft` cannot draft for `target`, if so."""
    try:
        check_same_vocabulary(target.vocab, draft.vocab)
    except VocabularyMismatchError as error:
        if alone:
            raise
        return str(error)
    if draft.can_rollback:
        return None
    return (
        f"{draft.path.name} keeps a recurrent memory ({draft.architecture}), which cannot take "
        "back a rejected token, so it cannot draft"
    )


def head_source(
    head: Head,
    context: Context,
    ctx: int,
    draft_ctx: int | None,
    shape: Shape,
    notices: list[str],
) -> Passes:
    """The source that `head` makes for the target of `context`, which keeps hidden states.

    Args:
        ctx: tokens that the text may have.
        shape: of what an EAGLE head drafts; Medusa's heads make trees.

    Raises:
        ModelError: it was made for another target, or is damaged.
        UsageError, ContextError: as `load`.
    """
    notice = check_target(head.path, head.label.target, context.model)
    if notice:
        notices.append(notice)
    if isinstance(head, MedusaHead):
        return _medusa_source(head, context)
    return _eagle_source(head, context, ctx, draft_ctx, shape)


def _eagle_source(
    head: EagleHead, context: Context, ctx: int, draft_ctx: int | None, shape: Shape
) -> EagleSource:
    target = context.model
    embedding = find_tensor(target.path, "token_embd.weight")
    tree = shape == "tree"
    with ExitStack() as undo:
        model = undo.enter_context(Model(head.path, kernels=target.library))
        small = Context(
            model,
            n_ctx=_draft_context_size(model, ctx, draft_ctx),
            n_seq=defaults.TREE_PATHS if tree else 1,
            threads=context.asked_threads,
            max_outputs=WIDTH,
            hidden=True,
            flash=target.library is not None,  # llama.cpp's takes longer than the rest of a head
        )
        source = EagleSource(head, model, small, embedding, shape=shape)
        undo.pop_all()
    return source


def _medusa_source(head: MedusaHead, context: Context) -> MedusaSource:
    heads, target = len(head.accuracy), context.model
    with ExitStack() as undo:
        model = undo.enter_context(Model(head.path, kernels=target.library))
        small = Context(
            model,
            n_ctx=heads,
            threads=context.asked_threads,
            max_outputs=heads,
            flash=target.library is not None,
        )
        source = MedusaSource(head, model, small)
        undo.pop_all()
    return source


def _draft_context_size(draft: Model, ctx: int, draft_ctx: int | None) -> int:
    if draft_ctx is None:
        return max(MIN_CONTEXT, min(ctx, draft.n_ctx_train))
    if draft_ctx < MIN_CONTEXT:
        raise UsageError(f"`draft_ctx` must be at least {MIN_CONTEXT}, not {draft_ctx}")
    return draft_ctx
