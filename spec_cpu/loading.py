"""From the names of a target and a draft to a session: files, memory, vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import get_args

from spec_cpu import defaults
from spec_cpu.draft.base import Drafter, Shape
from spec_cpu.draft.eagle import EagleDrafter
from spec_cpu.draft.growth import WIDTH
from spec_cpu.draft.medusa import MedusaDrafter
from spec_cpu.draft.model import MIN_CONTEXT, ModelDrafter
from spec_cpu.draft.ngram import NgramDrafter
from spec_cpu.errors import UsageError
from spec_cpu.fetch import resolve
from spec_cpu.heads.eagle_file import EagleHead
from spec_cpu.heads.file import Head, is_head, read_head
from spec_cpu.heads.identity import check_target
from spec_cpu.heads.medusa_file import MedusaHead
from spec_cpu.kernels.choose import Kernels
from spec_cpu.llama.context import Context
from spec_cpu.llama.gguf import check_model_file
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import find_tensor
from spec_cpu.llama.vocab import check_same_vocabulary
from spec_cpu.lookup import read_references
from spec_cpu.sampling import SamplingParams
from spec_cpu.session import Progress, Session
from spec_cpu.verify import RULES


def load(
    target: str | Path,
    draft: str | Path | None = None,
    *,
    ctx: int | None = None,
    draft_ctx: int | None = None,
    threads: int | None = None,
    k: int | None = None,
    shape: str = defaults.SHAPE,
    rule: str = defaults.RULE,
    sampling: SamplingParams | None = None,
    seed: int | None = None,
    system: str | None = None,
    lookup: Sequence[Path] = (),
    kernels: str = defaults.KERNELS,
    recalibrate: bool = False,
    progress: Progress | None = None,
) -> Session:
    """Load a target, and a draft if one is given, for a conversation.

    Args:
        target, draft: a GGUF file, or a catalogue name (fetched if needed); a `Path` is a file. The
            draft may be a head that was trained for the target. The draft "ngram" is no model:
            drafts are looked up in the text itself.
        ctx: tokens of context; default: what the target was trained on, at most 4,096.
        draft_ctx: the draft's context; default: as the target's, at most what the draft was trained
            on. With a smaller one it drafts from a sliding window.
        threads: default: one a physical core.
        k: drafted tokens a cycle, 0 .. 64; default: chosen each cycle by what it costs here and
            what was accepted so far.
        shape: what a draft model proposes: a `chain` of drawn tokens, a `tree` of the likeliest
            ones, or by temperature (`auto`).
        rule: `block` or `token`, which are exact, or `typical`, which is not.
        sampling: default: llama.cpp's.
        seed: of all random draws, 0 or more; default: a new one, kept in `Session.seed`. With one
            given the choice of k does not follow the machine's momentary speed, so that the same
            seed, settings and kept costs give the same text.
        system: a system turn that conversations begin with.
        lookup: files of text for the draft "ngram" to look things up in, too.
        kernels: `auto` multiplies with kernels made for this machine (compiled once) where a model
            gains from them; `on` always; `off` never.
        recalibrate: measure what passes cost here, even if it is known from before.
        progress: told of downloads and loading.

    Raises:
        UsageError: an option out of range, no such file or catalogue name.
        CatalogError: a model could not be fetched.
        ModelError: a file is not a usable model, the two do not share a vocabulary, or a head was
            made for another target.
        ContextError: not enough memory.
    """
    _check_options(k, shape, rule, seed)
    sampling = sampling or SamplingParams()
    drawn: Shape = _shape(shape, sampling)
    looks_up = draft == defaults.NGRAM
    if lookup and not looks_up:
        raise UsageError(f"a text to look things up in needs the draft {defaults.NGRAM}")
    start = perf_counter()
    notices: list[str] = []
    chosen = Kernels(kernels, threads=threads, fresh=recalibrate, progress=progress)
    with ExitStack() as undo:
        model = undo.enter_context(_load_model(target, "target", chosen, progress))
        n_ctx = _context_size(model, ctx, notices)
        drafts = draft is not None and k != 0 and _can_draft_for(model, notices)
        head = None
        if drafts and draft is not None and not looks_up:
            draft = _path(draft, progress)
            head = read_head(draft) if is_head(draft) else None
        grown = drafts and head is None and drawn == "tree"
        branches = looks_up or grown or isinstance(head, MedusaHead)
        context = undo.enter_context(
            Context(
                model,
                n_ctx=n_ctx,
                n_seq=defaults.TREE_PATHS if branches and model.can_rollback else 1,
                threads=threads,
                hidden=head is not None,
            )
        )
        drafter: Drafter | None = None
        references = read_references(lookup, model.vocab, notices)
        if draft is None or not drafts:
            pass
        elif looks_up:
            drafter = NgramDrafter(references, ends=model.vocab.end_tokens)
        elif head is not None:
            drafter = _head_drafter(model, head, context, draft_ctx, notices)
        else:
            small = undo.enter_context(_load_model(draft, "draft", chosen, progress))
            drafter = _drafter(model, small, context, draft_ctx, drawn, notices)
        undo.pop_all()
    if chosen.notice:
        notices.append(chosen.notice)
    return Session(
        model,
        context,
        drafter,
        k=k,
        rule=rule,
        sampling=sampling,
        seed=seed,
        system=system,
        notices=notices,
        load_seconds=perf_counter() - start,
        recalibrate=recalibrate,
    )


def _shape(shape: str, sampling: SamplingParams) -> Shape:
    """What a draft model proposes."""
    if shape == "auto":
        # Drawn tokens are accepted with 1 - TV, more often than the likeliest with its p.
        return "tree" if sampling.greedy else "chain"
    return "tree" if shape == "tree" else "chain"


def _check_options(k: int | None, shape: str, rule: str, seed: int | None) -> None:
    if k is not None and not 0 <= k <= defaults.MAX_DRAFT_TOKENS:
        raise UsageError(f"draft-tokens must be from 0 to {defaults.MAX_DRAFT_TOKENS}, not {k}")
    shapes = (defaults.SHAPE, *get_args(Shape))
    if shape not in shapes:
        raise UsageError(f"shape must be one of {', '.join(shapes)}, not {shape}")
    if rule not in RULES:
        raise UsageError(f"rule must be one of {', '.join(RULES)}, not {rule}")
    if seed is not None and seed < 0:
        raise UsageError(f"seed must be 0 or more, not {seed}")


def _path(name: str | Path, progress: Progress | None) -> Path:
    return name if isinstance(name, Path) else resolve(name, progress)


def _load_model(name: str | Path, part: str, kernels: Kernels, progress: Progress | None) -> Model:
    path = _path(name, progress)
    check_model_file(path)
    library = kernels.library_for(path, progress)
    if progress is None:
        return Model(path, kernels=library)
    label = f"loading the {part}"

    def report(fraction: float) -> None:
        progress(label, round(100 * fraction), 100)

    return Model(path, kernels=library, progress=report)


def _context_size(model: Model, ctx: int | None, notices: list[str]) -> int:
    trained = model.n_ctx_train
    if ctx is None:
        return min(trained, defaults.CONTEXT)
    if ctx > trained:
        notices.append(
            f"{model.path.name} was trained on texts of {trained:,} tokens: "
            f"beyond them a context of {ctx:,} may bring nonsense"
        )
    return ctx


def _can_draft_for(target: Model, notices: list[str]) -> bool:
    if not target.can_rollback:
        notices.append(
            f"{target.path.name} keeps a recurrent memory ({target.architecture}), which cannot "
            "take back a rejected draft: decoding plainly"
        )
    return target.can_rollback


def _drafter(
    target: Model,
    draft: Model,
    context: Context,
    draft_ctx: int | None,
    shape: Shape,
    notices: list[str],
) -> ModelDrafter | None:
    check_same_vocabulary(target.vocab, draft.vocab)
    if not draft.can_rollback:
        notices.append(
            f"{draft.path.name} keeps a recurrent memory ({draft.architecture}), which cannot take "
            "back a rejected token, so it cannot draft: decoding plainly"
        )
        draft.close()
        return None
    n_ctx = _draft_context_size(draft, context, draft_ctx)
    tree = shape == "tree"
    small = Context(
        draft,
        n_ctx=n_ctx,
        n_seq=defaults.TREE_PATHS if tree else 1,
        threads=context.threads,
        max_outputs=WIDTH if tree else 1,
    )
    return ModelDrafter(draft, small, n_vocab=target.vocab.n, shape=shape)


def _draft_context_size(draft: Model, context: Context, draft_ctx: int | None) -> int:
    if draft_ctx is None:
        return max(MIN_CONTEXT, min(context.n_ctx, draft.n_ctx_train))
    if draft_ctx < MIN_CONTEXT:
        raise UsageError(f"draft-ctx must be at least {MIN_CONTEXT}, not {draft_ctx}")
    return draft_ctx


def _head_drafter(
    target: Model, head: Head, context: Context, draft_ctx: int | None, notices: list[str]
) -> Drafter:
    notice = check_target(head.path, head.label.target, target)
    if notice:
        notices.append(notice)
    if isinstance(head, MedusaHead):
        return _medusa_drafter(target, head, context)
    return _eagle_drafter(target, head, context, draft_ctx)


def _eagle_drafter(
    target: Model, head: EagleHead, context: Context, draft_ctx: int | None
) -> EagleDrafter:
    embedding = find_tensor(target.path, "token_embd.weight")
    with ExitStack() as undo:
        model = undo.enter_context(Model(head.path))
        small = Context(
            model,
            n_ctx=_draft_context_size(model, context, draft_ctx),
            threads=context.threads,
            max_outputs=1,
            hidden=True,
            flash=False,  # fused attention takes longer than all the rest of a head
        )
        undo.pop_all()
    return EagleDrafter(head, model, small, embedding, ends=target.vocab.end_tokens)


def _medusa_drafter(target: Model, head: MedusaHead, context: Context) -> MedusaDrafter:
    heads = len(head.accuracy)
    with ExitStack() as undo:
        model = undo.enter_context(Model(head.path))
        small = Context(model, n_ctx=heads, threads=context.threads, max_outputs=heads, flash=False)
        undo.pop_all()
    return MedusaDrafter(head, model, small, paths=context.n_seq, ends=target.vocab.end_tokens)
