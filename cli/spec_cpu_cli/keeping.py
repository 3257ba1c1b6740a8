"""Conversations that are kept: the options for it, and going on with the latest one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu import defaults
from spec_cpu.arguments import expanded
from spec_cpu.errors import UsageError
from spec_cpu.pairing import NO_DRAFT, ModelChoice
from spec_cpu_cli.command import CONVERSATIONS
from spec_cpu_cli.options import AnswerOptions, ModelOptions, SamplingOptions

if TYPE_CHECKING:
    from spec_cpu.answer.steps import Finish
    from spec_cpu.conversations.log import Logged
    from spec_cpu.conversations.record import Conversation, HeldWith
    from spec_cpu.draft.names import Drafts
    from spec_cpu.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOptions:
    """Whether what is said is kept, of every command that answers."""

    log: Annotated[
        bool,
        typer.Option(
            "--log",
            help="Keep what is said in a private file: see spec-cpu logs.",
            rich_help_panel=CONVERSATIONS,
        ),
    ] = False
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Go on with the conversation that was kept last, with its model unless another "
            "is named; and keep it.",
            rich_help_panel=CONVERSATIONS,
        ),
    ] = False

    def begin(self) -> Kept | None:
        """The conversation that is kept, if it is to be.

        Raises:
            UsageError: none is there to go on with.
            SpecCpuError: the log cannot be used.
        """
        from spec_cpu.conversations.log import Log

        if not (self.log or self.go_on):
            return None
        with Log() as log:
            latest = log.latest() if self.go_on else None
        if self.go_on and latest is None:
            raise UsageError("there is no conversation to go on with: begin one with --log")
        return Kept(latest)


class Kept:
    """One conversation in the log."""

    def __init__(self, latest: Logged | None) -> None:
        """Go on with `latest`; None: begin one."""
        self._latest = latest

    def with_models(self, models: ModelOptions) -> ModelOptions:
        """`models`, with those of the conversation that goes on where none were named."""
        if self._latest is None or models.target is not None or models.pair is not None:
            return models
        held_with = self._latest.conversation.models
        draft = held_with.draft if models.draft is None else models.draft
        return replace(models, target=held_with.target, draft=draft)

    def resume(self, session: Session, system: str | None) -> Finish | None:
        """Give `session` what was said before, with another system prompt if there is one.

        Returns:
            How the last answer ended, if that is known.
        """
        from spec_cpu.conversations.edit import set_system_prompt

        if self._latest is None:
            return None
        conversation = self._latest.conversation
        session.messages[:] = conversation.messages
        if system:
            set_system_prompt(session.messages, system)
        session.notices += other_model(conversation, session)
        return conversation.finish

    @property
    def earlier(self) -> Conversation | None:
        """The conversation that goes on, as it was kept last."""
        return None if self._latest is None else self._latest.conversation

    def keep(self, conversation: Conversation) -> None:
        """Keep it as it is now."""
        from spec_cpu.conversations.log import Log

        with Log() as log:
            self._latest = log.keep(conversation, self._latest)

    def begin_anew(self) -> None:
        """What is kept next is another conversation."""
        self._latest = None


def other_model(conversation: Conversation, session: Session) -> list[str]:
    """A notice, if `conversation` was held with another model than that of `session`."""
    if conversation.models.fingerprint == session.target.fingerprint:
        return []
    name = session.target.path.name
    return [f"this conversation was held with {conversation.models.name}: {name} goes on with it"]


def settings_of(answer: AnswerOptions, sampling: SamplingOptions) -> dict[str, Any]:
    """The settings that are kept with a conversation, by the names of their options."""
    return {"max_tokens": answer.max_tokens, **asdict(sampling)}


def record(
    session: Session,
    choice: ModelChoice,
    settings: dict[str, Any],
    finish: Finish | None,
    earlier: Conversation | None,
) -> Conversation:
    """The conversation of `session`, as it is kept.

    Args:
        choice: the models that it was loaded with.
        settings: see `settings_of`.
        finish: how its last answer ended; None where that is not known.
        earlier: what it goes on from, whose answers keep their models' names.
    """
    from spec_cpu.conversations.record import Conversation, authors

    messages = [turn.copy() for turn in session.messages]
    wrote = authors(messages, session.target.path.name, earlier)
    return Conversation(_held_with(session, choice), messages, settings, finish, wrote)


def _held_with(session: Session, choice: ModelChoice) -> HeldWith:
    from spec_cpu.conversations.record import HeldWith

    target = session.target
    return HeldWith(
        _again(choice.target), _drafts(choice.drafts), target.path.name, target.fingerprint
    )


def _drafts(drafts: Drafts) -> str:
    names = [defaults.NGRAM] if drafts.ngram else []
    if drafts.model is not None:
        names.append(_again(drafts.model))
    return ",".join(names) or NO_DRAFT


def _again(name: str | Path) -> str:
    """The name of a model that finds it from any folder."""
    path = expanded(Path(name))
    return str(path.absolute()) if path.exists() else str(name)
