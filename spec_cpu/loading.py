"""From the names of a target and a draft to a session: files, memory, vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

from spec_cpu import defaults
from spec_cpu.draft.base import Drafter
from spec_cpu.draft.model import MIN_CONTEXT, ModelDrafter
from spec_cpu.draft.ngram import NgramDrafter
from spec_cpu.drafts import Drafts, read_drafts
from spec_cpu.errors import UsageError, VocabularyMismatchError
from spec_cpu.fetch import resolve
from spec_cpu.kernels.choose import Kernels
from spec_cpu.llama.context import Context
from spec_cpu.llama.gguf import check_model_file
from spec_cpu.llama.model import Model
from spec_cpu.llama.vocab import check_same_vocabulary
from spec_cpu.lookup import read_references
from spec_cpu.sampling import SamplingParams
from spec_cpu.session import Progress, Session
from spec_cpu.verify import RULES


def load(
    target: str | Path,
    draft: str | Path | Drafts | None = None,
    *,
    ctx: int | None = None,
    draft_ctx: int | None = None,
    threads: int | None = None,
    k: int | None = None,
    rule: str = defaults.RULE,
    sampling: SamplingParams | None = None,
    seed: int | None = None,
    system: str | None = None,
    lookup: Sequence[Path] = (),
    kernels: str = defaults.KERNELS,
    recalibrate: bool = False,
    progress: Progress | None = None,
) -> Session:
    """Load a target, and what drafts for it, for a conversation.

    Args:
        target, draft: a GGUF file, or a catalogue name (fetched if needed); a `Path` is a file. The
            draft "ngram" is no model: drafts are looked up in the text itself. "ngram,tiny.gguf"
            has both, and each cycle whichever promises more for its time.
        ctx: tokens of context; default: what the target was trained on, at most 4,096.
        draft_ctx: the draft's context; default: as the target's, at most what the draft was trained
            on. With a smaller one it drafts from a sliding window.
        threads: default: one a physical core.
        k: drafted tokens a cycle, 0 .. 64; default: chosen each cycle by what it costs here and
            what was accepted so far. Of two drafts whichever promises more tokens then has k.
        rule: `block` or `token`.
        sampling: default: llama.cpp's.
        seed: of all random draws, 0 or more; default: a new one, kept in `Session.seed`. With one
            given the choice of k does not follow the machine's momentary speed, so that the same
            seed, settings and kept costs give the same text.
        system: a system turn that conversations begin with.
        lookup: files of text for the draft "ngram" to look things up in, too; only with that.
        kernels: `auto` multiplies with kernels made for this machine (compiled once) where a model
            gains from them; `on` always; `off` never.
        recalibrate: measure what passes cost here, even if it is known from before.
        progress: told of downloads and loading.

    Raises:
        UsageError: an option out of range, no such file or catalogue name.
        CatalogError: a model could not be fetched.
        ModelError: a file is not a usable model, or the two do not share a vocabulary.
        ContextError: not enough memory.
    """
    _check_options(k, rule, seed)
    drafts = draft if isinstance(draft, Drafts) else read_drafts(draft)
    if lookup and not drafts.ngram:
        raise UsageError(f"a text to look things up in needs the draft {defaults.NGRAM}")
    start = perf_counter()
    notices: list[str] = []
    chosen = Kernels(kernels, threads=threads, fresh=recalibrate, progress=progress)
    with ExitStack() as undo:
        model = undo.enter_context(_load_model(target, "target", chosen, progress))
        n_ctx = _context_size(model, ctx, notices)
        paths = defaults.TREE_PATHS if drafts.ngram and model.can_rollback else 1
        context = undo.enter_context(Context(model, n_ctx=n_ctx, n_seq=paths, threads=threads))
        references = read_references(lookup, model.vocab, notices)
        drafters = make_drafters(
            Drafts() if k == 0 else drafts,
            context,
            references=references,
            load_draft=lambda name: undo.enter_context(
                _load_model(name, "draft", chosen, progress)
            ),
            draft_ctx=draft_ctx,
            notices=notices,
        )
        undo.pop_all()
    if chosen.notice:
        notices.append(chosen.notice)
    return Session(
        model,
        context,
        drafters,
        k=k,
        rule=rule,
        sampling=sampling or SamplingParams(),
        seed=seed,
        system=system,
        notices=notices,
        load_seconds=perf_counter() - start,
        recalibrate=recalibrate,
    )


def _check_options(k: int | None, rule: str, seed: int | None) -> None:
    if k is not None and not 0 <= k <= defaults.MAX_DRAFT_TOKENS:
        raise UsageError(f"draft-tokens must be from 0 to {defaults.MAX_DRAFT_TOKENS}, not {k}")
    if rule not in RULES:
        raise UsageError(f"rule must be one of {', '.join(RULES)}, not {rule}")
    if seed is not None and seed < 0:
        raise UsageError(f"seed must be 0 or more, not {seed}")


def _load_model(name: str | Path, part: str, kernels: Kernels, progress: Progress | None) -> Model:
    path = name if isinstance(name, Path) else resolve(name, progress)
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


def make_drafters(
    drafts: Drafts,
    context: Context,
    *,
    references: Sequence[Sequence[int]],
    load_draft: Callable[[str | Path], Model],
    draft_ctx: int | None,
    notices: list[str],
) -> list[Drafter]:
    """Those of `drafts` that can draft for the target of `context`, look-ups first.

    Args:
        references: texts to look things up in.
        load_draft: loads the draft model; who gave it closes what is not in a drafter in the end.
        notices: are told what cannot draft, and why.

    Raises:
        As `load`, of the draft model. With look-ups beside it another vocabulary is but a notice.
    """
    target = context.model
    if not drafts:
        return []
    if not target.can_rollback:
        notices.append(
            f"{target.path.name} keeps a recurrent memory ({target.architecture}), which cannot "
            "take back a rejected draft: decoding plainly"
        )
        return []
    drafters: list[Drafter] = []
    if drafts.ngram:
        drafters.append(NgramDrafter(references, ends=target.vocab.end_tokens))
    if drafts.model is not None:
        draft = load_draft(drafts.model)
        why_not = _why_not(target, draft, alone=not drafts.ngram)
        if why_not is None:
            drafters.append(_model_drafter(context, draft, draft_ctx))
        else:
            instead = "drafting from the text itself" if drafts.ngram else "decoding plainly"
            notices.append(f"{why_not}: {instead}")
            draft.close()
    return drafters


def _why_not(target: Model, draft: Model, *, alone: bool) -> str | None:
    """Why `draft` cannot draft for `target`, if so; VocabularyMismatchError: if it is `alone`."""
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


def _model_drafter(context: Context, draft: Model, draft_ctx: int | None) -> ModelDrafter:
    if draft_ctx is None:
        n_ctx = max(MIN_CONTEXT, min(context.n_ctx, draft.n_ctx_train))
    elif draft_ctx < MIN_CONTEXT:
        raise UsageError(f"draft-ctx must be at least {MIN_CONTEXT}, not {draft_ctx}")
    else:
        n_ctx = draft_ctx
    small = Context(draft, n_ctx=n_ctx, threads=context.threads, max_outputs=1)
    return ModelDrafter(draft, small, n_vocab=context.model.vocab.n)
