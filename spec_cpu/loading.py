"""From the names of a target and a draft to a session: files, memory, vocabularies."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import get_args

from spec_cpu import defaults
from spec_cpu.answer.asked import SAMPLING
from spec_cpu.arguments import (
    FILE,
    FLAG,
    FUNCTION,
    TEXT,
    WHOLE,
    Kind,
    check_drafted,
    check_seed,
    expanded,
    one_of,
    paths,
)
from spec_cpu.cycle.verify import RULES
from spec_cpu.draft.base import Shape
from spec_cpu.draft.memory import Memory, MemoryTarget
from spec_cpu.draft.names import Drafts
from spec_cpu.errors import UsageError
from spec_cpu.kernels.autotune import Kernels
from spec_cpu.llama.model import Model
from spec_cpu.machine import hardware
from spec_cpu.pairing import choose_models
from spec_cpu.parts import context_size, load_parts
from spec_cpu.progress import Progress
from spec_cpu.prompt_cache import MadeBy, PromptCache
from spec_cpu.sampling.pipeline import SamplingParams
from spec_cpu.session import Session

_DRAFT = Kind(
    "a name or a path (a str or a Path), Drafts, or None",
    lambda value: value is None or isinstance(value, Drafts) or FILE.accepts(value),
)


def load(
    target: str | Path | None = None,
    draft: str | Path | Drafts | None = None,
    *,
    pair: str | None = None,
    ctx: int | None = None,
    draft_ctx: int | None = None,
    threads: int | None = None,
    k: int | None = None,
    shape: str = defaults.SHAPE,
    rule: str = defaults.RULE,
    sampling: SamplingParams | None = None,
    seed: int | None = None,
    system: str | None = None,
    lookup: str | Path | Iterable[str | Path] | None = (),
    memory: str | Path | None = None,
    prompt_cache: str | Path | None = None,
    kernels: str = defaults.KERNELS,
    rpc: str | Iterable[str] | None = (),
    recalibrate: bool = False,
    progress: Progress | None = None,
) -> Session:
    """Load a target, and what drafts for it, for a conversation.

    Args:
        target: a GGUF file, a catalogue name, or OWNER/NAME or OWNER/NAME:QUANT on the hub (fetched
            if needed); a `Path` is a file.
        draft: a small model of the target's family, likewise, or a head that was trained for it.
            "ngram" is no model: drafts are looked up in the text itself, and in what the target
            held for likely before; the default for a target. With "ngram,tiny.gguf" both propose,
            and the best of it is drafted. "none" decodes plainly.
        pair: target and draft by a name in the catalogue. Without a target it is the default pair,
            which needs no model hub.
        ctx: tokens of context; default: what the target was trained on, at most
            `defaults.CONTEXT`. 0: all of that.
        draft_ctx: the draft's context; default: as the target's, at most what the draft was trained
            on. With a smaller one it drafts from a sliding window.
        threads: default: one a physical core, fewer while others keep the processors busy.
        k: drafted tokens a cycle, 0 .. 64; default: chosen each cycle by what it costs here and
            what was accepted so far.
        shape: what a draft model proposes: a `chain` of drawn tokens, a `tree` of the likeliest
            ones, or by temperature (`auto`).
        rule: `block` or `token`, which are exact, or `typical`, which is not.
        sampling: default: llama.cpp's.
        seed: of the random draws of each answer, 0 or more; default: a new one for each, kept in
            `Session.seed`. With one the same prompt, settings and kept costs give the same text,
            see `Session.generate`.
        system: a system turn that conversations begin with.
        lookup: files of text (or one) for the draft "ngram" to look things up in, too; only with
            that.
        memory: a file in which what was learnt from the texts of this session is kept for later
            ones with this target: they draft from it (`close` writes it). It holds what was said.
            Only with the draft "ngram". Answers with a seed do not draft from it, unless they are
            not `repeatable`.
        prompt_cache: a file in which the state of the session's first prompt is kept. Another
            session that begins alike, with the same target, need not read it again.
        kernels: `auto` multiplies with kernels made for this machine (compiled once) where a model
            gains from them; `on` always; `off` never.
        rpc: HOST:PORT of llama.cpp's RPC servers (or one text with commas between): the target's
            layers are put on their machines. What drafts, and the target's output matrix, stay
            here. All that passes between is sent in clear.
        recalibrate: measure what passes cost here, even if it is known from before.
        progress: told of downloads and loading.

    Raises:
        UsageError: an option out of range, no such file or catalogue name.
        MemoryFileError: `memory` is a file of another kind, or of another target.
        CatalogError: a model could not be fetched.
        ModelError: a file is not a usable model, the two do not share a vocabulary, or a head was
            made for another target.
        ContextError: not enough memory.
        RemoteError: a machine that `rpc` names cannot be used, or llama.cpp was built without RPC.
    """
    FILE.check(optional=True, target=target, memory=memory, prompt_cache=prompt_cache)
    TEXT.check(optional=True, pair=pair)
    _DRAFT.check(draft=draft)
    SAMPLING.check(optional=True, sampling=sampling)
    WHOLE.check(optional=True, ctx=ctx, draft_ctx=draft_ctx, threads=threads)
    TEXT.check(kernels=kernels)
    TEXT.check(optional=True, system=system)
    FLAG.check(recalibrate=recalibrate)
    FUNCTION.check(optional=True, progress=progress)
    check_seed(seed)
    _check_options(k, shape, rule)
    sampling = sampling or SamplingParams()
    choice = choose_models(target, draft, pair)
    drafts = choice.drafts
    lookup = paths("lookup", lookup)
    if lookup and not drafts.ngram:
        raise UsageError(f"a text to look things up in needs the draft {defaults.NGRAM}")
    if memory is not None and not drafts.ngram:
        raise UsageError(f"a `memory` to guess from needs the draft {defaults.NGRAM}")
    start = perf_counter()
    chosen = Kernels(kernels, threads=threads, fresh=recalibrate, progress=progress)
    with ExitStack() as undo:
        parts = load_parts(
            choice.target,
            Drafts() if k == 0 else drafts,
            chosen,
            lookup=lookup,
            shape=_shape(shape, sampling),
            draft_ctx=draft_ctx,
            rpc=rpc,
            progress=progress,
        )
        undo.callback(parts.close)
        model, notices = parts.target, parts.notices
        sampling.check_tokens(model.vocab.n, model.path.name)
        n_ctx = context_size(model, ctx, notices)
        remembered = None if memory is None else _memory(memory, model, seed, notices)
        kept = None if prompt_cache is None else _prompt_cache(prompt_cache, model)
        context = parts.context(n_ctx, _threads(threads, seed))
        sources = parts.sources(context, n_ctx, remembers=remembered is not None)
        notice = None if remembered is None else remembered.restore(sources)
        undo.pop_all()
    if choice.notice and sources:
        notices.insert(0, choice.notice)
    notices += [each for each in (notice, chosen.notice) if each]
    return Session(
        model,
        context,
        sources,
        k=k,
        rule=rule,
        sampling=sampling,
        row_ops=chosen.row_ops,
        seed=seed,
        system=system,
        notices=notices,
        load_seconds=perf_counter() - start,
        recalibrate=recalibrate,
        memory=remembered,
        prompt_cache=kept,
    )


def _memory(path: str | Path, target: Model, seed: int | None, notices: list[str]) -> Memory:
    if seed is not None:
        notices.append(
            "with a seed nothing is guessed from the memory, so that the same seed gives the same "
            "text: what is said is kept there all the same"
        )
    name, n_vocab = target.info.name, target.vocab.n
    return Memory(expanded(Path(path)), MemoryTarget(name, target.fingerprint, n_vocab))


def _prompt_cache(path: str | Path, target: Model) -> PromptCache:
    settings = f"llama.cpp {version('llama-cpp-python')}, {target.kernels} kernels, 16-bit cache"
    if target.servers:
        settings += f", layers on {', '.join(map(str, target.servers))}"
    made_by = MadeBy(target.info.name, target.fingerprint, settings)
    return PromptCache(expanded(Path(path)), made_by)


def _threads(asked: int | None, seed: int | None) -> int | None:
    """A seed gives the same text however busy the machine is.

    llama.cpp's attention adds up a long context in another order on another number of threads.
    """
    return asked if seed is None else hardware.threads(asked)


def _shape(shape: str, sampling: SamplingParams) -> Shape:
    """What a draft model proposes."""
    if shape == "auto":
        # Drawn tokens are accepted with 1 - TV, more often than the likeliest with its p.
        return "tree" if sampling.greedy else "chain"
    return "tree" if shape == "tree" else "chain"


def _check_options(k: int | None, shape: str, rule: str) -> None:
    check_drafted(k)
    one_of("shape", shape, (defaults.SHAPE, *get_args(Shape)))
    one_of("rule", rule, RULES)
