"""`spec-cpu demo`: two prompts, one where guessing ahead pays, and one where it hardly does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

from spec_cpu import defaults
from spec_cpu.errors import UsageError
from spec_cpu_cli import options as opt
from spec_cpu_cli.signature import with_options
from spec_cpu_cli.terminal import print_aside, print_text

if TYPE_CHECKING:
    from spec_cpu.answer.stats import Stats
    from spec_cpu.session import Session

PROMPTS = (
    """Correct the spelling of this text, and write all of it:

Last summer we rented a small house at the coast for two weeks. The first days it rained so \
much that teh children were playing cards from morning until night. On the fourth day teh sun \
came out, and we walked along teh beach to the old lighthouse, which is now a museum. An old man \
showed us the lamp and told us how his grandfather had kept it burning in every storm. In the \
evening we ate fish at teh harbour and watched the boats come in. It was the best day of our \
holiday.""",
    "Explain in three sentences why the sky is blue.",
)
_MAX_TOKENS = 256


@with_options
def demo(*, models: opt.ModelOptions, drafting: opt.DraftOptions) -> None:
    """Show what guessing ahead brings here: a text to correct, then a plain question.

    Both are answered at temperature 0, twice with guessing ahead and twice without, and timed.
    """
    from spec_cpu.machine.disturbance import disturbance, spent
    from spec_cpu.sampling.pipeline import SamplingParams
    from spec_cpu_cli.answer import say

    choice = models.choice
    if not choice.drafts:
        raise UsageError("the demo compares guessing ahead with plain decoding: give a --draft")
    with opt.open_session(choice, models, drafting, SamplingParams(temperature=0)) as session:
        if not models.quiet:
            say(session)
        for prompt in PROMPTS:
            print_text(f"> {prompt}\n")
            begun = spent()
            ahead = _answered(session, prompt, shown=True, quiet=models.quiet)
            # A machine that grows faster or slower meanwhile favours neither.
            plain = _answered(session, prompt, k=0)
            plain.merge(_answered(session, prompt, k=0))
            ahead.merge(_answered(session, prompt))
            print_text(f"\n{comparison(ahead, plain)}\n")
            if busy := disturbance(begun, spent(), session.threads):
                print_text(f"This machine was busy meanwhile ({busy}): do not rely on that.\n")
    if models.target is None and models.pair is None:
        print_text(
            f"That was a demo model of {_parameters()} parameters; for a real one on this machine: "
            "spec-cpu models suggest"
        )


def _parameters() -> str:
    """How many the default target has, such as 135M."""
    from spec_cpu.models.catalog import load_catalog

    catalog = load_catalog()
    return catalog.model(catalog.pair(defaults.PAIR).target).parameters


def _answered(
    session: Session, prompt: str, *, shown: bool = False, quiet: bool = True, k: int | None = None
) -> Stats:
    """Answer `prompt` as if nothing had been asked before; with a `k` of 0, without guessing."""
    from spec_cpu_cli.answer import stream_answer
    from spec_cpu_cli.startup import EXIT_CODE

    session.reset()
    # With a seed nothing is guessed from what the session has seen, such as the answer itself.
    answer = partial(session.generate, prompt, max_tokens=_MAX_TOKENS, k=k, seed=1)
    stream_answer(
        session,
        lambda progress: answer(progress=progress),
        stream=shown,
        quiet=quiet,
        color=False,
    )
    if session.finish == "interrupted":
        print_aside("stopped: the demo was not at its end")
        raise typer.Exit(EXIT_CODE)
    return session.stats


def comparison(ahead: Stats, plain: Stats) -> str:
    """What two answers took each way, and what guessing ahead came to, in words."""
    from spec_cpu_cli.report import compared

    fast, slow = ahead.tokens_per_second, plain.tokens_per_second
    assert fast
    assert slow, "an answer has a cycle at least"
    return (
        f"{ahead.tokens / 2:.0f} tokens in {ahead.decode / 2:.2f} s; without guessing ahead "
        f"{plain.tokens / 2:.0f} in {plain.decode / 2:.2f} s: {compared(fast / slow)}"
    )
