"""Commands that read and write files."""

from __future__ import annotations

from pathlib import Path

from spec_cpu.arguments import expanded
from spec_cpu.conversations.edit import system_prompt
from spec_cpu.conversations.record import load_conversation, save_conversation
from spec_cpu.errors import UsageError
from spec_cpu.text.files import decode, read_bytes
from spec_cpu_cli.chat.notes import note
from spec_cpu_cli.chat.settings import restore
from spec_cpu_cli.chat.state import Attachment, Chat
from spec_cpu_cli.keeping import other_model


def attach(chat: Chat, argument: str) -> None:
    """Add a file's text to the next message."""
    path = _path("/file", argument)
    text = decode(read_bytes(path), path)
    if not text.strip():
        raise UsageError(f"{path} is empty")
    chat.attachments.append(Attachment(path.name, text))
    names = ", ".join(one.name for one in chat.attachments)
    note(f"{len(text):,} characters of {path.name}; with your next message: {names}")


def save(chat: Chat, argument: str) -> None:
    """Save the conversation."""
    path = _path("/save", argument)
    save_conversation(path, chat.record(), text=path.suffix == ".md")
    note(f"saved {len(chat.session.messages)} turns to {path}")


def load(chat: Chat, argument: str) -> None:
    """Go on with a saved conversation, with its settings."""
    path = _path("/load", argument)
    conversation = load_conversation(path)
    restore(chat, conversation.settings)
    session = chat.session
    session.messages[:] = conversation.messages
    chat.set_system(system_prompt(session.messages))
    chat.finish, chat.unsent = conversation.finish, None
    if chat.kept:
        chat.kept.begin_anew()
    note(f"loaded {len(session.messages)} turns from {path}, with their settings (/set)")
    for notice in other_model(conversation, session):
        note(f"note: {notice}")


def _path(command: str, argument: str) -> Path:
    if argument[:1] in ('"', "'") and argument[-1:] == argument[:1] and len(argument) > 1:
        argument = argument[1:-1]
    if not argument:
        raise UsageError(f"{command} needs a file name")
    if "\0" in argument:
        raise UsageError(f"{argument!a} cannot be the name of a file")
    return expanded(Path(argument))
