"""Thoughts before an answer: what stands between <think> and </think>."""

from __future__ import annotations

from typing import Literal

BEGIN, END = "<think>", "</think>"
MARKS = (BEGIN, END)

_State = Literal["start", "thinking", "behind", "answer"]


class Thoughts:
    """Splits an answer into thoughts and what is said."""

    def __init__(self, *, thinking: bool) -> None:
        """`thinking`: the prompt ends where thoughts begin."""
        self._state: _State = "thinking" if thinking else "start"
        self._first = True  # the space before the first thought is none
        self._held = ""

    @property
    def thinking(self) -> bool:
        return self._state == "thinking"

    def push(self, text: str) -> tuple[str, str]:
        """The thoughts, and the answer, that `text` completes."""
        self._held += text
        thought = said = ""
        if self._state == "start":
            self._begin()
        if self._state == "thinking":
            thought = self._think()
        if self._state == "behind":
            self._held = self._held.lstrip()
            self._state = "answer" if self._held else "behind"
        if self._state == "answer":
            said, self._held = self._held, ""
        return thought, said

    def finish(self) -> tuple[str, str]:
        """Nothing follows: what was held back."""
        held, self._held = self._held, ""
        return (held, "") if self.thinking else ("", held)

    def _begin(self) -> None:
        bare = self._held.lstrip()
        if bare.startswith(BEGIN):
            self._state, self._held = "thinking", bare[len(BEGIN) :]
        elif not BEGIN.startswith(bare):
            self._state = "answer"

    def _think(self) -> str:
        if self._first:
            self._held = self._held.lstrip()
        thought, end, rest = self._held.partition(END)
        if end:
            self._state, self._held = "behind", rest
            return thought.rstrip()
        # Space goes with what follows it: before the end there is none.
        bare = self._held.rstrip()
        keep = open_length(bare, END)
        bare = bare[: len(bare) - keep].rstrip()
        self._held = self._held[len(bare) :]
        self._first = self._first and not bare
        return bare


def open_length(text: str, mark: str) -> int:
    """The length of the longest end of `text` with which `mark` begins."""
    sizes = range(min(len(text), len(mark) - 1), 0, -1)
    return next((n for n in sizes if mark.startswith(text[-n:])), 0)
