"""Server-sent events, read."""

from __future__ import annotations

import json
from typing import Any


def chunks(text: str, done: str = "[DONE]") -> list[Any]:
    """The data of a stream, which ends with `done`, or with an object that has it."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith((":", "event: "))]
        assert all(line.startswith("data: ") for line in lines), block
        found += [line.removeprefix("data: ") for line in lines]
    if done == "[DONE]":
        assert found.pop() == done
    return [json.loads(one) for one in found]
