"""Commands that read and write files."""

from __future__ import annotations

import os
from pathlib import Path

from spec_cpu.arguments import expanded
from spec_cpu.conversations.edit import questions, set_system_prompt, system_prompt
from spec_cpu.conversations.record import load_conversation, save_conversation
from spec_cpu.errors import UsageError
from spec_cpu.text.files import decode, read_bytes
from spec_cpu_cli.chat.notes import note
from spec_cpu_cli.chat.settings import restore, typed
from spec_cpu_cli.chat.state import Attachment, Chat
from spec_cpu_cli.keeping import other_model


def attach(chat: Chat, argument: str) -> None:
    """Add a file's text to the next message; `-NAME` leaves one out again; alone, list them."""
    names = [one.name for one in chat.attachments]
    if not argument:
        note(f"with your next message: {', '.join(names) or 'no file'}")
        return
    if argument.startswith("-") and argument[1:] in names:
        del chat.attachments[names.index(argument[1:])]
        note(f"left out: {argument[1:]}")
        return
    path = _path("/file", argument)
    text = decode(read_bytes(path), path)
    if not text.strip():
        raise UsageError(f"{path} is empty")
    tokens, room = len(chat.session.target.vocab.tokenize(text)), chat.session.n_ctx
    if tokens >= room:
        raise UsageError(
            f"{path.name} has {tokens:,} tokens, but the context holds {room:,}: give a part of it"
        )
    chat.attachments.append(Attachment(path.name, text))
    all_names = ", ".join([*names, path.name])
    note(f"{len(text):,} characters of {path.name}; with your next message: {all_names}")


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
    chat.saved = [turn.copy() for turn in chat.session.messages]
    note(f"saved {len(chat.session.messages)} turns to {path}")


def load(chat: Chat, argument: str) -> None:
    """Go on with a saved conversation, with its settings, unless this one would be lost."""
    path = _path("/load", argument)
    messages = chat.session.messages
    if questions(messages) and messages != chat.saved and not chat.kept:
        raise UsageError(
            f"this conversation is not saved: /save FILE keeps it, /load! {argument} drops it"
        )
    _load(chat, path)


def load_anyway(chat: Chat, argument: str) -> None:
    """Go on with a saved conversation in place of one that may not be saved."""
    _load(chat, _path("/load!", argument))


def _load(chat: Chat, path: Path) -> None:
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
    chat.saved = [turn.copy() for turn in session.messages]
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
