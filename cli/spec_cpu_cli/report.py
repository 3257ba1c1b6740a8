"""What an answer took, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from spec_cpu import defaults
from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.session import Session

_FREE = 0.05  # of the time: drafting that takes less is not the reason for a low speedup


def live_line(stats: Stats, why_plain: str | None) -> str:
    """One line of markup on how it is going; `why_plain` says why nothing is drafted just now."""
    parts = [f"[bold]{_number(stats.tokens_per_second, '.1f')} tok/s[/]"]
    if stats.drafted:
        parts = [
            f"[bold]{_number(stats.alpha, '.0%')}[/] accepted",
            f"{_number(stats.tokens_per_cycle, '.2f')} tokens per step",
            *parts,
            *([] if stats.speedup is None else [f"[bold]{stats.speedup:.2f}x[/] plain decoding"]),
            f"k {stats.k}",
        ]
    if why_plain:
        parts.append(f"not drafting: {why_plain}")
    return "[dim]" + " · ".join([*parts, f"{stats.tokens} tokens"]) + "[/]"


def summary(
    stats: Stats, why_plain: str | None, shape: str | None, *, exact: bool
) -> Iterator[str]:
    """A few lines of text: speed, acceptance, speedup measured and predicted, and what it means.

    Args:
        why_plain: why nothing is drafted just now. `shape`: of what is drafted.
        exact: is the text distributed as the target's own?
    """
    if not stats.cycles:
        yield "stopped before the first token"
        return
    reused = f", {stats.reused_tokens} of them kept from before" if stats.reused_tokens else ""
    yield (
        f"{stats.tokens} tokens in {stats.decode:.2f} s: {_number(stats.tokens_per_second, '.1f')} "
        f"tok/s (prompt: {stats.prompt_tokens} tokens{reused}, {stats.prefill:.2f} s)"
    )
    if why_plain:
        yield f"Not drafting at the end: {why_plain}. `spec-cpu plan` shows what passes cost here."
    if not stats.drafted:
        return
    if not exact:
        yield (
            "Not exact: the rule typical keeps what is likely enough, so that this text is not "
            "distributed as the target's own."
        )
    positions = " ".join(f"{alpha:.2f}" for alpha in stats.alpha_by_position)
    yield (
        f"{_number(stats.tokens_per_cycle, '.2f')} tokens per step with k = {stats.k}"
        f"{' (trees)' if shape == 'tree' else ''}; {_number(stats.alpha, '.0%')} accepted, "
        f"{_number(stats.alpha_exact, '.0%')} expected (by position: {positions})"
    )
    if len(stats.by_source) > 1:
        yield from (_part(name, one, stats) for name, one in stats.by_source.items())
    if stats.speedup is None:
        yield (
            "speedup not known: there are too few plain steps to compare with, and no measured "
            "passes as wide as these (`spec-cpu plan --max-k K` measures them)"
        )
        return
    yield (
        f"speedup {stats.speedup:.2f}x over plain decoding "
        f"({_number(stats.plain_tokens_per_second, '.1f')} tok/s); predicted "
        f"{_number(stats.speedup_theory, '.2f')}x, or "
        f"{_number(stats.speedup_textbook, '.2f')}x if verifying were free"
    )
    yield from _advice(stats)


def _part(name: str, source: SourceStats, stats: Stats) -> str:
    if not source.cycles:
        return f"{name}: never drafted"
    return (
        f"{name}: drafted in {source.cycles} of {stats.cycles} steps, "
        f"{_number(source.alpha, '.0%')} accepted, "
        f"{_number(source.tokens_per_cycle, '.2f')} tokens per step"
    )


def _advice(stats: Stats) -> Iterator[str]:
    if stats.speedup is None or stats.speedup >= defaults.WORTHWHILE_SPEEDUP or stats.c is None:
        return
    if stats.draft < _FREE * stats.decode or stats.speedup >= 1:
        yield "Drafting brought little here: too few tokens were accepted for what a pass costs."
        return
    verify = (
        f", a pass over {stats.k + 1} tokens {stats.verify_cost:.1f}" if stats.verify_cost else ""
    )
    yield (
        f"This draft does not pay here: a token of it costs {stats.c:.2f} plain steps{verify}. "
        "Try a much smaller draft, a smaller -k, or --draft none."
    )


def as_json(session: Session, text: str) -> dict[str, Any]:
    """The object that `--json` prints: the latest answer of `session`."""
    stats = session.stats
    model = session.draft_model
    return {
        "text": text,
        "prompt_tokens": stats.prompt_tokens,
        "tokens": stats.tokens,
        "finish": session.finish,
        "why_plain": _why_plain(session),
        "k": stats.k,
        "shape": session.shape,
        "rule": session.rule,
        "exact": session.exact,
        "seed": session.seed,
        "cycles": stats.cycles,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tried_by_position": stats.tried_by_position,
        "accepted_by_position": stats.accepted_by_position,
        "alpha": stats.alpha,
        "alpha_exact": stats.alpha_exact,
        "tokens_per_cycle": stats.tokens_per_cycle,
        "seconds": {
            "load": session.load_seconds,
            "prefill": stats.prefill,
            "calibrate": stats.calibrate,
            "decode": stats.decode,
            "draft": stats.draft,
            "target": stats.target,
            "sample": stats.sample,
        },
        "tokens_per_second": stats.tokens_per_second,
        "plain_tokens_per_second": stats.plain_tokens_per_second,
        "speedup": stats.speedup,
        "speedup_theory": stats.speedup_theory,
        "speedup_textbook": stats.speedup_textbook,
        "target": asdict(session.target.info),
        "source": ",".join(source.name for source in session.sources) or None,
        "sources": {name: _counted(one) for name, one in stats.by_source.items()},
        "draft": asdict(model.info) if model else None,
        "notices": session.notices,
    }


def _why_plain(session: Session) -> str | None:
    """Why nothing is drafted, or nothing was in the whole answer."""
    if session.sources and not session.stats.drafted:
        return session.why_plain or "the answer ended before anything was worth drafting"
    return session.why_plain or session.target.why_no_drafts


def _counted(source: SourceStats) -> dict[str, float | None]:
    return {
        **asdict(source),
        "alpha": source.alpha,
        "tokens_per_cycle": source.tokens_per_cycle,
    }


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
