"""Commands that show and change how answers are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from spec_cpu.arguments import WHOLE, check_seed
from spec_cpu.conversations.edit import set_system_prompt
from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.pairing import NO_DRAFT
from spec_cpu_cli import completion
from spec_cpu_cli import options as opt
from spec_cpu_cli.chat import shown
from spec_cpu_cli.chat.notes import note
from spec_cpu_cli.chat.state import Chat
from spec_cpu_cli.keeping import settings_of

_AUTO, _NONE = "auto", "none"
_NEW_SEED = "a new one"


def names(begun: str = "") -> Iterator[str]:
    """Names of settings that begin with `begun`, as they are typed."""
    known = ["max_tokens", *(field.name for field in fields(opt.SamplingOptions))]
    yield from (name for name in map(typed, known) if name.startswith(begun))


def change(chat: Chat, argument: str) -> None:
    """Change one setting; without an argument show all."""
    # As it is typed elsewhere, too: temp=0.3, TEMP 0.3, --temp 0.3
    name, *words = re.sub(r"^-*([\w-]+)\s*=", r"\1 ", argument.strip()).split() or [""]
    name = name.lstrip("-").lower()
    if not name:
        found = settings_of(chat.answer, chat.sampling)
        shown.print_columns((typed(key), _shown(key, value)) for key, value in found.items())
        return
    key = name.replace("-", "_")
    if typed(key) not in names():
        raise UsageError(f"there is no setting {name}; there are {', '.join(names())}")
    if not words:
        note(f"{typed(key)} is {_shown(key, settings_of(chat.answer, chat.sampling)[key])}")
        return
    restore(chat, {key: _parsed(key, words)})
    note(f"{typed(key)} is {_shown(key, settings_of(chat.answer, chat.sampling)[key])} from now on")


def restore(chat: Chat, settings: Mapping[str, Any]) -> None:
    """Let answers be made with `settings`, by the names of their options.

    Raises:
        UsageError: one of them is none, or makes no sense. Then nothing is changed.
    """
    sampling = {name: value for name, value in settings.items() if name != "max_tokens"}
    most = settings.get("max_tokens", chat.answer.max_tokens)
    try:
        changed = replace(chat.sampling, **sampling)
        if not WHOLE.accepts(most):
            raise TypeError
        most = opt.until_the_end(most)
        if changed.seed is not None:
            check_seed(changed.seed)
        changed.params.check_tokens(chat.session.target.vocab.n, chat.session.target.path.name)
    except TypeError:
        raise UsageError("these are settings of another version of spec-cpu") from None
    chat.sampling, chat.answer = changed, replace(chat.answer, max_tokens=most)


def _parsed(key: str, words: list[str]) -> Any:
    """The value of a setting, as its option has it."""
    if key == "logit_bias":
        return None if words == [_NONE] else words
    if key == "seed" and " ".join(words) in (_NONE, _NEW_SEED):
        return None
    hints = get_type_hints(opt.AnswerOptions if key == "max_tokens" else opt.SamplingOptions)
    kinds = get_args(hints[key]) or (hints[key],)
    text = " ".join(words)
    try:
        return float(text) if float in kinds else int(text)
    except ValueError:
        wanted = "a number" if float in kinds else "a whole number"
        raise UsageError(f"{typed(key)} takes {wanted}, not {text!r}") from None


def typed(key: str) -> str:
    """The name of a setting as a person types it."""
    return key.replace("_", "-")


def _shown(key: str, value: object) -> str:
    if key == "seed" and value is None:
        return _NEW_SEED
    if value == opt.until_the_end(-1):
        return "-1"
    if isinstance(value, list):
        return " ".join(value)
    return _NONE if value is None else str(value)


def system(chat: Chat, argument: str) -> None:
    """Show the system prompt, or change it for this conversation and those to come."""
    if argument:
        text = None if argument == _NONE else argument
        chat.set_system(text)
        set_system_prompt(chat.session.messages, text)
        chat.keep()
    note(f"system prompt: {chat.answer.system or _NONE}")


def drafts(begun: str) -> Iterator[str]:
    """What `/draft` takes that begins with `begun`."""
    yield from [_AUTO] if _AUTO.startswith(begun) else []
    yield from (word for word, _ in completion.drafts(begun))


def draft(chat: Chat, argument: str) -> None:
    """Show what guesses ahead, or choose it. Another model than the one loaded is loaded."""
    if argument == NO_DRAFT:
        chat.plain = True
    elif argument:
        _load_draft(chat, None if argument == _AUTO else argument)
    names = " and ".join(
        source.model.path.name if source.model else source.name for source in chat.session.sources
    )
    note(f"guessing ahead: {NO_DRAFT if chat.plain or not names else names}")


def _load_draft(chat: Chat, name: str | None) -> None:
    if name != chat.models.draft:
        before = chat.models
        chat.models = replace(before, draft=name)
        try:
            chat.models.choice  # noqa: B018 (a name that makes no sense is no reason to load)
            chat.load()
        except SpecCpuError:
            chat.models = before
            if chat.session.closed:
                chat.load()
            raise
    chat.plain = False
