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
_MODEL = "assistant"  # the role of the model


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
        authors: of each message, the name of the model that wrote it, None for a person's; empty:
            `models` wrote all answers.
    """

    models: HeldWith
    messages: list[Message]
    settings: Mapping[str, Any] = field(default_factory=dict)
    finish: Finish | None = None
    authors: list[str | None] = field(default_factory=list)

    @property
    def written_by(self) -> list[str | None]:
        """Of each message, the name of the model that wrote it."""
        mine = [self.models.name if turn["role"] == _MODEL else None for turn in self.messages]
        return self.authors or mine

    def as_json(self) -> dict[str, Any]:
        """What its file holds."""
        return {"format": _FORMAT, "version": _VERSION, **asdict(self)}

    def as_text(self) -> str:
        """Something to read: Markdown, with a heading for each turn."""
        others = [name if name != self.models.name else None for name in self.written_by]
        turns = [
            f"## {turn['role']}{f' ({other})' if other else ''}\n\n{turn['content'].strip()}\n"
            for turn, other in zip(self.messages, others, strict=True)
        ]
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
    authors = found.get("authors", [])
    if not (
        all(isinstance(text, str) for text in texts)
        and isinstance(settings, dict)
        and finish in (None, *get_args(Finish))
        and isinstance(authors, list)
        and len(authors) in (0, len(messages))
        and all(isinstance(name, str | None) for name in authors)
    ):
        raise ValueError
    return Conversation(models, messages, settings, finish, authors)


def authors(messages: list[Message], name: str, earlier: Conversation | None) -> list[str | None]:
    """Who wrote each of `messages`: `name` what the `earlier` conversation did not hold already."""
    known: dict[str, str | None] = {}
    if earlier is not None:
        known = {
            turn["content"]: author
            for turn, author in zip(earlier.messages, earlier.written_by, strict=True)
            if author
        }
    return [
        known.get(turn["content"], name) if turn["role"] == _MODEL else None for turn in messages
    ]


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
    if os.path.isdir(path):  # no error for absurd names
        raise UsageError(f"cannot save: {path} is a folder: give the name of a file")
    try:
        if text and decode(read_bytes(path), path).startswith("# With "):
            return
        load_conversation(path)
    except UsageError as error:
        raise UsageError(f"{path} is there and holds something else: give another name") from error
