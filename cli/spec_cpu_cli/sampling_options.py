"""The options that say how tokens are chosen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.errors import UsageError
from spec_cpu_cli.command import SAMPLING

if TYPE_CHECKING:
    from spec_cpu.sampling.pipeline import SamplingParams

_BIAS = re.compile(r"(-?\d+)(?:=|(?=[+-]))(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn."""

    temp: Annotated[
        float,
        typer.Option(
            "--temp",
            help="How freely tokens are chosen; 0: always the likeliest one.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.TEMPERATURE
    top_k: Annotated[
        int,
        typer.Option(
            "--top-k", help="Only the K likeliest tokens; 0: all.", rich_help_panel=SAMPLING
        ),
    ] = defaults.TOP_K
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p",
            help="Only the likeliest tokens that make up this share; 1: all.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.TOP_P
    min_p: Annotated[
        float,
        typer.Option(
            "--min-p",
            help="Only tokens at least this likely, beside the likeliest one; 0: all.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.MIN_P
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            "-s",
            help="The same seed gives the same text.",
            show_default="a new one",
            rich_help_panel=SAMPLING,
        ),
    ] = None
    repeat_penalty: Annotated[
        float,
        typer.Option(
            "--repeat-penalty",
            help="Against tokens that were said; 1: off.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.REPEAT_PENALTY
    frequency_penalty: Annotated[
        float,
        typer.Option(
            "--frequency-penalty",
            help="Against tokens by how often they were said; 0: off.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.FREQUENCY_PENALTY
    presence_penalty: Annotated[
        float,
        typer.Option(
            "--presence-penalty",
            help="Against tokens that were said, however often; 0: off.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.PRESENCE_PENALTY
    repeat_last_n: Annotated[
        int,
        typer.Option(
            "--repeat-last-n",
            help="How many of the last tokens count as said; -1: all.",
            rich_help_panel=SAMPLING,
        ),
    ] = defaults.PENALTY_LAST_N
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            "--logit-bias",
            metavar="ID=BIAS",
            help="Make a token likelier or, below 0, less likely; -inf: never. May be repeated.",
            show_default="none",
            rich_help_panel=SAMPLING,
        ),
    ] = None

    @property
    def params(self) -> SamplingParams:
        """The sampling flags as the library takes them. Raises UsageError for a bad one."""
        from spec_cpu.sampling.pipeline import SamplingParams

        return SamplingParams(
            temperature=self.temp,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            penalty_last_n=self.repeat_last_n,
            logit_bias=dict(map(_parse_bias, self.logit_bias or ())),
        )


def _parse_bias(text: str) -> tuple[int, float]:
    """`ID=BIAS`, or llama.cpp's own `ID+BIAS` and `ID-BIAS`."""
    if found := _BIAS.fullmatch(text):
        try:
            return int(found[1]), float(found[2])
        except ValueError:
            pass
    raise UsageError(f"--logit-bias takes TOKEN_ID=BIAS, such as 42=-inf, not {text!r}")
