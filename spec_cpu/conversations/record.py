"""A conversation with what it was held with, and the file that keeps it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from spec_cpu.answer.steps import Finish
from spec_cpu.cache import create_private, replacing
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.llama.chat import Message
from spec_cpu.text.files import decode, read_bytes

_FORMAT, _VERSION = "spec-cpu conversation", 1


@dataclass(frozen=True, slots=True)
class HeldWith:
    """The models of a conversation.

    Attributes:
        target, draft: as they are loaded again: a file, a catalogue name, `ngram` and the like.
        name: of the target's file.
        fingerprint: tells that file from any other (`Model.fingerprint`).
    """

    target: str
    draft: str
    name: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, and with what.

    Attributes:
        settings: of sampling and the like, by the names of their options.
        finish: how the last answer ended; None where that is not known.
    """

    models: HeldWith
    messages: list[Message]
    settings: Mapping[str, Any] = field(default_factory=dict)
    finish: Finish | None = None

    def as_json(self) -> dict[str, Any]:
        """What its file holds."""
        return {"format": _FORMAT, "version": _VERSION, **asdict(self)}

    def as_text(self) -> str:
        """Something to read: Markdown, with a heading for each turn."""
        turns = [f"## {turn['role']}\n\n{turn['content'].strip()}\n" for turn in self.messages]
        return "\n".join([f"# With {self.models.name}\n", *turns])


def parse_conversation(text: str, name: str | Path) -> Conversation:
    """The conversation in the text of a file called `name`.

    Raises:
        UsageError: it is none, or of a later version.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise UsageError(f"{name} is no saved conversation of spec-cpu")
    if found.get("version") != _VERSION:
        raise UsageError(
            f"{name} is a conversation of version {found.get('version')!r}, but this spec-cpu "
            f"reads version {_VERSION}: update it"
        )
    try:
        return _conversation(found)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{name} is a saved conversation that was damaged") from None


def _conversation(found: dict[str, Any]) -> Conversation:
    models = HeldWith(**found["models"])
    messages = [Message(role=turn["role"], content=turn["content"]) for turn in found["messages"]]
    texts = [*asdict(models).values(), *(text for turn in messages for text in turn.values())]
    finish, settings = found["finish"], found["settings"]
    if not (
        all(isinstance(text, str) for text in texts)
        and isinstance(settings, dict)
        and finish in (None, *get_args(Finish))
    ):
        raise ValueError
    return Conversation(models, messages, settings, finish)


def load_conversation(path: Path) -> Conversation:
    """The conversation that `path` holds.

    Raises:
        UsageError: it cannot be read, is none, or of a later version.
    """
    return parse_conversation(decode(read_bytes(path), path), path)


def save_conversation(path: Path, conversation: Conversation, *, text: bool = False) -> None:
    """Write it to `path` in one step, private to the user. What was there before is replaced.

    Args:
        text: something to read (`Conversation.as_text`), which cannot be loaded again.

    Raises:
        UsageError: another kind of file is there, which stays.
        SpecCpuError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if text:
        content = conversation.as_text()
    else:
        content = json.dumps(conversation.as_json(), ensure_ascii=False, indent=1) + "\n"
    try:
        if target.exists():
            _check_replaceable(path, text=text)
        with replacing(target) as part:
            create_private(part, content.encode())
    except OSError as error:
        raise SpecCpuError(f"cannot write {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"cannot write {str(path)!a}: {error}") from None


def _check_replaceable(path: Path, *, text: bool) -> None:
    try:
        if text and decode(read_bytes(path), path).startswith("# With "):
            return
        load_conversation(path)
    except UsageError as error:
        raise UsageError(f"{path} is there and holds something else: give another name") from error
