"""Commands that read and write files."""

from __future__ import annotations

import os
from pathlib import Path

from spec_cpu.arguments import expanded
from spec_cpu.conversations.edit import set_system_prompt, system_prompt
from spec_cpu.conversations.record import load_conversation, save_conversation
from spec_cpu.errors import UsageError
from spec_cpu.text.files import decode, read_bytes
from spec_cpu_cli.chat.notes import note
from spec_cpu_cli.chat.settings import restore, typed
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
    """Save the conversation, in a new file or in the one that it was saved to or loaded from."""
    path = _path("/save", argument)
    if os.path.isfile(path) and path.resolve() != chat.file:  # no error for absurd names
        raise UsageError(f"{path} is there already: /save! {argument} writes over it")
    _save(chat, path)


def replace(chat: Chat, argument: str) -> None:
    """Save the conversation in place of another one."""
    _save(chat, _path("/save!", argument))


def _save(chat: Chat, path: Path) -> None:
    save_conversation(path, chat.record(), text=path.suffix == ".md")
    chat.file = path.resolve()
    note(f"saved {len(chat.session.messages)} turns to {path}")


def load(chat: Chat, argument: str) -> None:
    """Go on with a saved conversation, with its settings."""
    path = _path("/load", argument)
    conversation = load_conversation(path)
    settings = conversation.settings
    theirs = {name: value for name, value in settings.items() if name not in chat.given}
    restore(chat, theirs)
    session = chat.session
    session.messages[:] = conversation.messages
    if "system" in chat.given:
        set_system_prompt(session.messages, chat.answer.system)
    chat.set_system(system_prompt(session.messages))
    chat.finish, chat.unsent, chat.file = conversation.finish, None, path.resolve()
    chat.earlier = conversation
    if chat.kept:
        chat.kept.begin_anew()
    kept = ", ".join(sorted(map(typed, chat.given & settings.keys())))
    but = f", but for {kept}, which you gave" if kept else ""
    note(f"loaded {len(session.messages)} turns from {path}, with their settings{but} (/set)")
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
