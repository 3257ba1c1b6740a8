"""Answers as formatted text: each paragraph, list or piece of code as soon as it is complete."""

from __future__ import annotations

import re
import sys

from spec_cpu_cli import terminal

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# What would move the cursor, or worse, is shown by its symbol.
_SHOWN = {code: 0x2400 + code for code in range(0x20) if code not in b"\t\n"} | {0x7F: 0x2421}
_ERASE_BELOW = "\x1b[J"


class MarkdownView:
    """Prints the blocks of a Markdown text to standard output while it comes."""

    def __init__(self) -> None:
        self._pending = ""
        self._printed = False

    def push(self, text: str) -> None:
        """Take the next text; print the blocks that are complete."""
        self._pending += text
        at = complete_blocks(self._pending)
        if at:
            block, self._pending = self._pending[:at], self._pending[at:]
            if terminal.moves_cursor(sys.stderr):
                sys.stdout.write(_ERASE_BELOW)  # what is drawn there is soon drawn anew
            self._print(block)

    def finish(self) -> None:
        """No more text comes: print the rest."""
        block, self._pending = self._pending, ""
        if block.strip():
            self._print(block)

    def _print(self, block: str) -> None:
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console()
        with console.capture() as captured:
            # An address is shown: nobody should follow a link by what its text says.
            console.print(Markdown(block.translate(_SHOWN), hyperlinks=False))
        shown = captured.get().strip("\n")  # some blocks come with empty lines around them
        if shown.strip():
            sys.stdout.write(f"\n{shown}\n" if self._printed else f"{shown}\n")
            sys.stdout.flush()
            self._printed = True


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
