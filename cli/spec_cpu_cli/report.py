"""What an answer took, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import sqrt
from typing import Any

from spec_cpu.answer.stats import SourceStats, Stats
from spec_cpu.costs.acceptance import ENOUGH
from spec_cpu.rpc.servers import Server
from spec_cpu.session import Session
from spec_cpu_cli.flags import with_flags

_SAME = 0.02  # speeds that lie closer together count as the same
_SPREAD = 0.5  # over the root of an answer's tokens: the difference that so few cannot show
_WITHOUT = "without guessing ahead"
LEGEND = "In brackets: what the papers call it."


def live_line(stats: Stats, why_plain: str | None, width: int) -> str:
    """How it is going, in at most `width` columns: the speed, how it compares, then the rest.

    Args:
        why_plain: why nothing is drafted just now.
    """
    parts = [f"{_number(stats.tokens_per_second, '.1f')} tok/s"]
    if ratio := _comparison(stats):
        parts.append(ratio)
    parts.append(_tokens(stats.tokens))
    if stats.drafted:
        parts.append(f"{_number(stats.tokens_per_cycle, '.1f')} tokens per step")
        if _tried(stats) >= ENOUGH:
            parts.append(f"{_number(stats.alpha, '.0%')} of guesses accepted")
    if why_plain:
        parts.append(f"not guessing ahead: {why_plain}")
    line = ""
    for part in parts:
        longer = f"{line} · {part}" if line else part
        if len(longer) > width:
            break
        line = longer
    return line


def _comparison(stats: Stats) -> str | None:
    """How its speed compares with plain decoding, in words; None: too little to tell."""
    if min(stats.tokens, _tried(stats)) < ENOUGH or stats.speedup is None:
        return None
    return compared(stats.speedup, max(_SAME, _SPREAD / sqrt(stats.tokens)))


def compared(ratio: float, same: float = _SAME) -> str:
    """How a speed compares with that of plain decoding, in words.

    Args:
        same: how far from 1 a ratio may be that says nothing.
    """
    if ratio >= 1.5:
        return f"{ratio:.1f} times as fast"
    if abs(ratio - 1.0) <= same:
        return "about as fast"
    return f"{abs(ratio - 1.0):.0%} {'faster' if ratio > 1.0 else 'slower'}"


def summary(stats: Stats, why_plain: str | None, *, exact: bool) -> Iterator[str]:
    """Two lines on an answer: its speed, and what guessing ahead came to.

    Args:
        why_plain: why nothing is drafted just now.
        exact: is the text distributed as the target's own? A third line says so where not.
    """
    if not stats.cycles:
        yield "stopped before the first token"
        return
    yield (
        f"{_tokens(stats.tokens)} in {stats.decode:.2f} s: "
        f"{_number(stats.tokens_per_second, '.1f')} tok/s (prompt: {_prompt(stats)})"
    )
    if stats.drafted:
        yield _outcome(stats, why_plain)
    elif why_plain:
        yield f"Not guessing ahead: {with_flags(why_plain)}."
    if stats.drafted and not exact:
        yield (
            "Not exact: the rule typical keeps what is likely enough, so that this text is not "
            "distributed as the target's own."
        )


def _prompt(stats: Stats) -> str:
    kept = f", {stats.reused_tokens} of them kept from before" if stats.reused_tokens else ""
    return f"{_tokens(stats.prompt_tokens)}{kept}, {stats.prefill:.2f} s"


def _outcome(stats: Stats, why_plain: str | None) -> str:
    """How it compares with plain decoding, and what that rests on."""
    ratio = _comparison(stats)
    if stats.tokens < ENOUGH:
        compares = "Too short an answer to compare"
    elif _tried(stats) < ENOUGH:
        compares = "Too few guesses to compare"
    elif ratio is None:
        compares = "Too few steps without guessing to compare with"
    else:
        link = "as" if ratio.endswith("as fast") else "than"
        compares = f"{ratio.capitalize()} {link} {_WITHOUT}"
    grounds = [f"{_number(stats.tokens_per_cycle, '.1f')} tokens per step"]
    if _tried(stats) >= ENOUGH:
        grounds.append(f"{_number(stats.alpha, '.0%')} of the guesses accepted")
    stopped = f". It stopped guessing: {with_flags(why_plain)}" if why_plain else ""
    return f"{compares}: {', '.join(grounds)}{stopped}."


def details(
    stats: Stats, shape: str | None, servers: Sequence[Server] = ()
) -> Iterator[tuple[str, str, str]]:
    """All that was measured of an answer: a name, a value, and what it means.

    Shares of fewer than 30 tokens are left out. What the papers call a number is in brackets.

    Args:
        shape: of what is drafted.
        servers: of the machines that hold the target's layers.
    """
    yield "speed", f"{_number(stats.tokens_per_second, '.1f')} tok/s", "of this answer"
    if _comparison(stats) and stats.speedup is not None:
        plain = _number(stats.plain_tokens_per_second, ".1f")
        yield (
            f"speed {_WITHOUT}",
            f"{plain} tok/s",
            "by this run's own steps, or times taken before",
        )
        yield "speedup", f"{stats.speedup:.2f}x", "the first over the second"
        formula, textbook = stats.speedup_theory, stats.speedup_textbook
        yield (
            "  expected",
            f"{_number(formula, '.2f')}x",
            "from the numbers below (E / (V(k+1) + k c))",
        )
        yield "  at most", f"{_number(textbook, '.2f')}x", "if checking were free (E / (1 + k c))"
    yield "tokens per step", _number(stats.tokens_per_cycle, ".2f"), "1 without guessing ahead (E)"
    if stats.drafted:
        trees = " (trees)" if shape == "tree" else ""
        yield "guesses per step", f"{stats.k}{trees}", "in most steps that guessed (k)"
        if stats.c is not None:
            yield (
                "asking, a guess",
                f"{stats.c:.2f}",
                "all asking; plan times one pass of the draft alone",
            )
        if stats.verify_cost is not None:
            yield (
                "checking takes",
                f"{stats.verify_cost:.2f}",
                f"in such steps (V({stats.k + 1}))",
            )
        yield from _shares(stats)
        yield from (_part(name, one, stats) for name, one in stats.by_source.items())
    yield "time", f"{stats.decode:.2f} s", "for all tokens; of it:"
    yield "  guessing", f"{stats.draft:.2f} s", "asking what may come next"
    yield "  the model", f"{stats.target:.2f} s", "its passes"
    yield "  choosing", f"{stats.sample:.2f} s", "sampling, and checking the guesses"
    yield "before it", f"{stats.prefill:.2f} s", "reading the prompt"
    if servers:
        yield "layers on", ", ".join(map(str, servers)), "computed there by llama.cpp's own code"
    if stats.calibrate >= 0.005:
        yield "and", f"{stats.calibrate:.2f} s", "timing this machine"


def _shares(stats: Stats) -> Iterator[tuple[str, str, str]]:
    tried = _tried(stats)
    if tried < ENOUGH:
        return
    share = _number(stats.alpha, ".0%")
    yield "guesses accepted", share, f"of {tried} that were tried (alpha)"
    yield (
        "  expected",
        _number(stats.alpha_exact, ".0%"),
        "by their chances: less noise (alpha, exact)",
    )
    counted = zip(stats.accepted_by_position, stats.tried_by_position, strict=True)
    by_position = [f"{right / n:.0%}" for right, n in counted if n >= ENOUGH]
    if by_position:
        yield "  by position", " ".join(by_position), "the first guess of a step, the second, ..."


def _part(name: str, source: SourceStats, stats: Stats) -> tuple[str, str, str]:
    if not source.cycles:
        return name, "nothing", "never guessed"
    share = f"{_number(source.alpha, '.0%')} accepted" if source.tried >= ENOUGH else "guessed"
    return name, share, f"had a part in {source.cycles} of {stats.cycles} steps"


def _tried(stats: Stats) -> int:
    return sum(stats.tried_by_position)


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
        "servers": [str(server) for server in session.target.servers],
        "source": ",".join(source.name for source in session.sources) or None,
        "sources": {name: _counted(one) for name, one in stats.by_source.items()},
        "draft": asdict(model.info) if model else None,
        "notices": [with_flags(notice) for notice in session.notices],
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


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
