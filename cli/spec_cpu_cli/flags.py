"""Messages of the library in the words of the command line: flags in place of parameters."""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"`([a-z]+(?:_[a-z]+)*)`")
_NAMES = {"k": "draft-tokens", "temperature": "temp", "penalty_last_n": "repeat-last-n"}
"""Flags that are called otherwise than the parameter."""


def with_flags(message: str) -> str:
    """`message` with the flag for each parameter that it names: `--top-p` for `top_p`."""
    return _PARAMETER.sub(lambda found: f"--{_flag(found[1])}", message)


def _flag(parameter: str) -> str:
    return _NAMES.get(parameter, parameter.replace("_", "-"))
