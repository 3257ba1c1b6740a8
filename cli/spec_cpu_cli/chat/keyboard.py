"""Messages typed at a terminal: several lines, history, completion."""

from __future__ import annotations

import os
import sys

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.shortcuts import CompleteStyle

from spec_cpu_cli.chat.notes import note
from spec_cpu_cli.chat.parsing import is_open
from spec_cpu_cli.interrupt import speak


class KeyboardReader:
    """Reads what is typed: Enter sends, Alt-Enter begins a new line, as Enter does in quotes."""

    def __init__(
        self,
        completer: Completer,
        *,
        history: History | None = None,
        quiet: bool = False,
        input: Input | None = None,  # noqa: A002 (prompt_toolkit's name)
        output: Output | None = None,
    ) -> None:
        """Read from the terminal; `input` and `output` are given by tests.

        Args:
            completer: completes on Tab.
            history: of earlier conversations. Default: of this one alone.
            quiet: no prompt and no hint.
        """
        self._quiet = quiet
        self._session: PromptSession[str] = PromptSession(
            "" if quiet else "> ",
            multiline=True,
            prompt_continuation="" if quiet else "  ",
            key_bindings=_keys(),
            completer=completer,
            complete_while_typing=False,
            # Lists what there is, as shells do: no room beneath the prompt is kept for a menu.
            complete_style=CompleteStyle.READLINE_LIKE,
            history=history or InMemoryHistory(),
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".md",
            input=input,
            output=output or _terminal(),
        )

    def read(self, beginning: str = "") -> str | None:
        """What is typed next; empty after Ctrl-C, None after Ctrl-D."""
        if not self._quiet:
            print(file=sys.stderr)
        try:
            return self._session.prompt(default=beginning, pre_run=speak)
        except KeyboardInterrupt:
            if not self._quiet:
                note("/exit or Ctrl-D leaves")
            return ""
        except EOFError:
            return None


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _terminal() -> Output:
    """The terminal that prompts are written to: never into a file that answers go to."""
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    # Nothing that is shown needs the cursor's place, and terminals that do not tell it would make
    # prompt_toolkit wait and warn.
    os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
    return create_output(stream)
