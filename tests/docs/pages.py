"""The pages that people read, and what stands in them to be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    where: str  # the page and the line

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a shell's block, up to where its output goes."""
        lines = self.text.replace("\\\n", " ").splitlines()
        found = [shlex.split(line, comments=True) for line in lines]
        return [words[: words.index(">")] if ">" in words else words for words in found if words]


def blocks(*languages: str) -> Iterator[Block]:
    """All blocks in these languages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            if found[1] in languages:
                line = text.count("\n", 0, found.start()) + 1
                yield Block(found[1], found[2], f"{page.name}:{line}")
