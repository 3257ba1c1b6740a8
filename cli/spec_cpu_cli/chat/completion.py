"""What Tab completes: commands, names of files, settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from spec_cpu_cli.chat.commands import COMMANDS


class ChatCompleter(Completer):
    """Completes commands and what is written after them."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """What may stand at the cursor."""
        typed = document.text_before_cursor
        if not typed.startswith("/") or "\n" in typed:
            return
        name, space, argument = typed[1:].partition(" ")
        if not space:
            yield from _words((f"/{known}" for known in COMMANDS), typed)
        elif name in COMMANDS:
            yield from self._arguments(name, argument, event)

    def _arguments(self, name: str, argument: str, event: CompleteEvent) -> Iterable[Completion]:
        completes = COMMANDS[name].completes
        if completes == "files":
            return self._paths.get_completions(Document(argument), event)
        return [] if completes is None else _words(completes(argument), argument)


def _words(words: Iterable[str], begun: str) -> Iterator[Completion]:
    for word in words:
        if word.startswith(begun):
            yield Completion(word, start_position=-len(begun))
