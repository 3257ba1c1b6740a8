"""The commands of a chat, each an entry of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from spec_cpu.errors import UsageError
from spec_cpu_cli.chat import files, settings, shown, turns
from spec_cpu_cli.chat.state import Chat


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        name: as it is typed after the `/`.
        argument: what may be written after it, as the help shows it.
        help: one line.
        run: carries it out, given what was written after it. Raises SpecCpuError.
        completes: its argument: `files`, or words that begin as what was typed of it.
    """

    name: str
    argument: str
    help: str
    run: Callable[[Chat, str], None]
    completes: Literal["files"] | Callable[[str], Iterable[str]] | None = None


def _help(_chat: Chat, argument: str) -> None:
    if argument == _KEYS_PAGE:
        shown.print_columns(_KEYS)
        return
    if argument:
        raise UsageError(f"there is /help, and /help {_KEYS_PAGE}")
    names: dict[str, str] = {}  # by what they do
    for one in TABLE:
        name = f"/{one.name} {one.argument}".strip()
        names[one.help] = f"{names[one.help]}, {name}" if one.help in names else name
    shown.print_columns((name, does) for does, name in names.items())


def _exit(chat: Chat, _argument: str) -> None:
    chat.left = True


_KEYS_PAGE = "keys"
_KEYS = (
    ("Alt-Enter", 'Begin a new line; a line """ begins and ends a text of several.'),
    ("Tab", "Complete a command or the name of a file."),
    ("Ctrl-X Ctrl-E", "Write the message in your editor ($EDITOR)."),
    ("Ctrl-C", "Stop an answer, or clear the line."),
    ("Ctrl-D", "Leave, as exit and quit do."),
    ("//...", "Send a message that begins with /."),
)


def _keys_page(begun: str) -> list[str]:
    return [_KEYS_PAGE] if _KEYS_PAGE.startswith(begun) else []


TABLE = (
    Command("help", f"[{_KEYS_PAGE}]", "Show this, or the keys.", _help, _keys_page),
    Command("retry", "", "Answer the last message again, in other words.", turns.retry),
    Command("continue", "", "Go on with an answer that was cut.", turns.go_on),
    Command("undo", "", "Take the last message and its answer back.", turns.undo),
    Command("edit", "[TEXT]", "Change the last message, and have it answered anew.", turns.edit),
    Command("reset", "", "Begin a new conversation.", turns.reset),
    Command("drop", "[N]", "Forget the oldest question and answer, or N of them.", turns.drop),
    Command("system", "[TEXT|none]", "Show or change the system prompt.", settings.system),
    Command(
        "set",
        "[NAME VALUE]",
        "Show the settings, or change one: /set temp 0.2",
        settings.change,
        settings.names,
    ),
    Command(
        "draft",
        "[NAME|none|auto]",
        "Show or choose what guesses ahead: a file, ngram, nothing, or what was chosen at first.",
        settings.draft,
        settings.drafts,
    ),
    Command(
        "file",
        "[PATH|-NAME]",
        "Add a file's text to your next message, leave one out again, or list them.",
        files.attach,
        "files",
    ),
    Command("load", "FILE", "Go on with a saved conversation.", files.load, "files"),
    Command("load!", "FILE", "The same, and drop this one unsaved.", files.load_anyway, "files"),
    Command(
        "save",
        "FILE",
        "Save the conversation with its model and settings; as text if FILE ends with .md.",
        files.save,
        "files",
    ),
    Command("save!", "FILE", "The same, in place of what FILE holds.", files.replace, "files"),
    Command("tokens", "", "Show how much of the context is used.", shown.tokens),
    Command("stats", "", "Show everything that was measured of the last answer.", shown.stats),
    Command("exit", "", "Leave.", _exit),
    Command("quit", "", "Leave.", _exit),
)
COMMANDS = {command.name: command for command in TABLE}
