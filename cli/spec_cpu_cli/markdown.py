"""Answers as formatted text: each paragraph, list or piece of code as soon as it is complete."""

from __future__ import annotations

import re

from spec_cpu_cli.wrapping import harmless

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# In place of rich's own where those cannot be read on a dark ground, or on a light one.
_STYLES = {
    "markdown.code": "bold cyan",
    "markdown.kbd": "bold",
    "markdown.link": "cyan",
    "markdown.link_url": "underline cyan",
}


class Markdown:
    """Formats the blocks of a Markdown text while it comes."""

    def __init__(self) -> None:
        self._pending = ""
        self._begun = False

    def push(self, text: str) -> str:
        """Take the next text; the blocks that are complete now, as whole lines."""
        self._pending += text
        at = complete_blocks(self._pending)
        block, self._pending = self._pending[:at], self._pending[at:]
        return self._formatted(block)

    def finish(self) -> str:
        """No more text comes: the rest."""
        block, self._pending = self._pending, ""
        return self._formatted(block)

    def _formatted(self, block: str) -> str:
        if not block.strip():
            return ""
        from rich import markdown
        from rich.console import Console
        from rich.theme import Theme

        console = Console(theme=Theme(_STYLES))
        with console.capture() as captured:
            # An address is shown: nobody should follow a link by what its text says.
            console.print(markdown.Markdown(harmless(block), hyperlinks=False))
        shown = captured.get().strip("\n")  # some blocks come with empty lines around them
        if not shown.strip():
            return ""
        gap = "\n" if self._begun else ""
        self._begun = True
        return f"{gap}{shown}\n"


def complete_blocks(text: str) -> int:
    """Where the last block of `text` begins: those before it are complete.

    A block ends at an empty line, outside of fenced code, before a line that is not indented: what
    is indented may belong to an item of a list.
    """
    fence, empty, at, found = "", False, 0, 0
    for line in text.splitlines(keepends=True):
        if empty and not fence and not line[0].isspace():
            found = at
        fence = _fence_after(line, fence)
        empty = not line.strip()
        at += len(line)
    return found


def _fence_after(line: str, fence: str) -> str:
    """The fence that is open after `line`; `fence` was before it."""
    mark = _FENCE.match(line)
    if mark is None:
        return fence
    if not fence:
        return mark[1]
    closes = mark[1].startswith(fence) and not line.strip().strip(fence[0])
    return "" if closes else fence
