"""The conversation: what a person says, and what becomes of it, until they leave."""

from __future__ import annotations

import sys

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu_cli.chat.commands import COMMANDS
from spec_cpu_cli.chat.notes import beginning, note
from spec_cpu_cli.chat.parsing import Call, Mistyped, parse
from spec_cpu_cli.chat.reading import LineReader, Reader
from spec_cpu_cli.chat.state import Chat
from spec_cpu_cli.chat.turns import send_instead
from spec_cpu_cli.interrupt import speak
from spec_cpu_cli.prompt import is_text


def talk(chat: Chat, *, history: bool) -> None:
    """Load the models, and talk.

    Args:
        history: keep what is typed for later conversations.
    """
    chat.load()
    try:
        if not chat.quiet:
            note("/help shows the commands, Ctrl-D leaves")
        converse(chat, _reader(chat, history=history))
    finally:
        speak()
        chat.close()


def converse(chat: Chat, reader: Reader) -> None:
    """Take what a person says until they leave."""
    while not chat.left:
        editing, chat.editing = chat.editing, None
        typed = reader.read(editing or "")
        if typed is None:
            return
        if not is_text(typed):
            note("that line is not UTF-8 text: type it again")
            chat.failed = True
            continue
        try:
            _act(chat, typed, instead=editing is not None)
        except SpecCpuError as error:
            chat.complain(error)


def _act(chat: Chat, typed: str, *, instead: bool) -> None:
    """Carry out a command, or have a message answered: with `instead` in place of the last one."""
    asked = parse(typed, COMMANDS)
    if asked is None:
        return
    if isinstance(asked, Call):
        command = COMMANDS[asked.name]
        if asked.argument and not command.argument:
            raise UsageError(
                f"/{asked.name} takes nothing after it, not {beginning(asked.argument)!r} (begin "
                "with // to send it as a message)"
            )
        command.run(chat, asked.argument)
    elif isinstance(asked, Mistyped):
        note(
            f"no command {asked.typed}: did you mean {asked.meant}? (Begin with // to send it as "
            "a message.)"
        )
    elif instead:
        send_instead(chat, asked.text)
    else:
        chat.send(asked.text)


def _reader(chat: Chat, *, history: bool) -> Reader:
    """The terminal, if both keys and a place to show them are there; else lines."""
    if not (sys.stdin and sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())):
        return LineReader(sys.stdin)
    from spec_cpu_cli.chat.completion import ChatCompleter
    from spec_cpu_cli.chat.history import FileHistory, history_file
    from spec_cpu_cli.chat.keyboard import KeyboardReader

    kept = FileHistory(history_file()) if history else None
    return KeyboardReader(ChatCompleter(), history=kept, quiet=chat.quiet)
