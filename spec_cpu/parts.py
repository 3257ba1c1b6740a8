"""A target and what drafts for it, in memory: the parts that conversations are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from spec_cpu import defaults
from spec_cpu.arguments import expanded
from spec_cpu.draft.base import Shape, Source
from spec_cpu.draft.load import head_source, lookup_sources, model_sources
from spec_cpu.draft.names import Drafts
from spec_cpu.heads.file import Head, check_writes, is_head, read_head
from spec_cpu.heads.medusa import MedusaHead
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.remote import check_supported
from spec_cpu.models.fetch import resolve
from spec_cpu.progress import Progress
from spec_cpu.rpc.servers import Server, parse_servers
from spec_cpu.text.references import read_references


@dataclass(slots=True)
class Parts:
    """What was loaded. Each conversation has sources of its own, which share the models.

    Attributes:
        target: `kernels`: what multiplies its weights.
        drafts: those that `target` can take.
        references: texts, as tokens, that drafts are looked up in.
        shape: of what a model drafts. `draft_ctx`: its context; None: by the target's.
        notices: what a person should know.
    """

    target: Model
    kernels: Kernels
    drafts: Drafts
    references: Sequence[Sequence[int]] = ()
    shape: Shape = "chain"
    draft_ctx: int | None = None
    notices: list[str] = field(default_factory=list)
    _head: Head | None = None
    _small: Model | None = None

    def load_draft(self, progress: Progress | None) -> None:
        """Load the model or the head that drafts, if one does. Errors: as `spec_cpu.load`."""
        if self.drafts.model is None:
            return
        path = find(self.drafts.model, progress)
        if is_head(path):
            self._head = read_head(path)
        else:
            self._small = load_model(path, "draft", self.kernels, progress)

    def context(
        self, n_ctx: int, threads: int | None, *, texts: int = 1, max_outputs: int | None = None
    ) -> Context:
        """A context of the target that holds `n_ctx` tokens of `texts` texts and their trees.

        Args:
            max_outputs: rows of one pass at most; default: what one text needs.

        Raises:
            UsageError, ContextError: as `Context`.
        """
        return Context(
            self.target,
            n_ctx=n_ctx,
            n_seq=texts * self.paths,
            max_outputs=max_outputs or defaults.MAX_DRAFT_TOKENS + 1,
            threads=threads,
            hidden=self._head is not None,
            parks=texts > 1,
        )

    @property
    def paths(self) -> int:
        """Sequences that a text and its trees need."""
        grown = self._small is not None and self.shape == "tree"
        branches = self.drafts.ngram or grown or isinstance(self._head, MedusaHead)
        return defaults.TREE_PATHS if branches else 1

    def sources(self, context: Context, ctx: int, *, remembers: bool = False) -> list[Source]:
        """Sources for one text of `context`, of up to `ctx` tokens.

        Args:
            remembers: is what they learn of the texts kept for later ones?

        Raises:
            VocabularyMismatchError, ModelError, UsageError, ContextError: as `spec_cpu.load`.
        """
        sources: list[Source] = []
        if self.drafts.ngram:
            rows = self.kernels.row_ops
            sources += lookup_sources(self.references, self.target, rows, remembers=remembers)
        if self._head is not None:
            head = head_source(self._head, context, ctx, self.draft_ctx, self.shape, self.notices)
            sources.append(head)
        elif self._small is not None:
            models = model_sources(
                self._small,
                context,
                ctx,
                self.draft_ctx,
                self.shape,
                self.notices,
                alone=not self.drafts.ngram,
            )
            if not models:
                self._small = None
            sources += models
        return sources

    def close(self) -> None:
        """Free the models, and all that was made of them. A second call does nothing."""
        if self._small is not None:
            self._small.close()
        self.target.close()


def load_parts(
    target: str | Path,
    drafts: Drafts,
    kernels: Kernels,
    *,
    lookup: Sequence[Path] = (),
    shape: Shape = "chain",
    draft_ctx: int | None = None,
    rpc: str | Iterable[str] | None = (),
    progress: Progress | None = None,
) -> Parts:
    """Load a target and its drafts. Arguments and errors: as for `spec_cpu.load`."""
    servers = parse_servers(rpc)
    if servers:
        check_supported()
    model = load_model(target, "target", kernels, progress, servers)
    parts = Parts(model, kernels, drafts, shape=shape, draft_ctx=draft_ctx)
    try:
        parts.references = read_references(lookup, model.vocab, parts.notices)
        if drafts and model.why_no_drafts:
            parts.notices.append(f"{model.why_no_drafts}: not guessing ahead")
            parts.drafts = Drafts()
        parts.load_draft(progress)
    except BaseException:
        parts.close()
        raise
    return parts


def find(name: str | Path, progress: Progress | None) -> Path:
    """The file that `name` stands for, fetched if needed. Errors: as `spec_cpu.load`."""
    return expanded(name) if isinstance(name, Path) else resolve(name, progress)


def load_model(
    name: str | Path,
    part: str,
    kernels: Kernels,
    progress: Progress | None,
    servers: Sequence[Server] = (),
) -> Model:
    """Load a model, `part` of what is used here. Errors: as `spec_cpu.load`.

    Args:
        servers: of the machines that are to hold its layers.
    """
    path = find(name, progress)
    check_writes(path)
    library = kernels.library_for(path, progress, elsewhere=bool(servers))
    load = partial(Model, path, kernels=library, threads=kernels.threads, servers=servers)
    if progress is None:
        return load()
    label = f"loading the {part}"

    def report(fraction: float) -> None:
        progress(label, round(100 * fraction), 100)

    return load(progress=report)


def context_size(model: Model, ctx: int | None, notices: list[str]) -> int:
    """Tokens of context where `ctx` is asked for; None: the default; 0: what it was trained on."""
    trained = model.n_ctx_train
    if ctx is None:
        return min(trained, defaults.CONTEXT)
    if ctx == 0:
        return trained
    if ctx > trained:
        notices.append(
            f"{model.path.name} was trained on texts of {trained:,} tokens: "
            f"beyond them a context of {ctx:,} may bring nonsense"
        )
    return ctx
