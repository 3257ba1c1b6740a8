"""How a conversation is made up: what the template says, and where the target speaks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spec_cpu.errors import ModelError
from spec_cpu.llama.chat import Message
from spec_cpu.llama.model import Model

_USER, _ANSWER, _NEXT = "\x02user\x02", "\x02answer\x02", "\x02next\x02"

GIVEN, USER, ASSISTANT = 0, 1, 2
"""Whose a token is: the template's; the user's, made up or from a prompt; the target's answer."""


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template in tokens: what stands before, between and after turns."""

    opening: list[int]
    to_assistant: list[int]
    to_user: list[int]
    ends: frozenset[int]

    @classmethod
    def of(cls, target: Model) -> Template:
        """Renders a conversation, and takes it apart at its turns.

        Raises:
            ModelError: the template does not show them as they are.
        """
        template, vocab = target.chat_template, target.vocab
        first = Message(role="user", content=_USER)
        told = template.render([first])
        on = template.render(
            [
                first,
                Message(role="assistant", content=_ANSWER),
                Message(role="user", content=_NEXT),
            ]
        )
        if _USER not in told or _ANSWER not in on or _NEXT not in on:
            raise ModelError(
                f"the chat template of {target.path.name} leaves turns out, so that no "
                "conversation can be made up with it: use a target with another template"
            )
        opening, _, to_assistant = told.partition(_USER)
        to_user = on.partition(_ANSWER)[2].partition(_NEXT)[0]
        return cls(
            vocab.tokenize(opening),
            vocab.tokenize(to_assistant, add_special=False),
            vocab.tokenize(to_user, add_special=False),
            vocab.end_tokens,
        )


@dataclass(slots=True)
class Speaker:
    """A conversation as it grows: says which token comes next, the model's or the template's.

    Turns alternate. The target makes up those of the user as well, once prompts are used up. A turn
    ends where the target ends it, or after as many tokens as it was allowed.
    """

    template: Template
    rng: np.random.Generator
    longest: tuple[int, int]
    """The least and the most tokens that an answer may have."""
    prompts: list[list[int]] = field(default_factory=list)
    """User turns, used up first to last; what follows them is made up."""
    unfinished: bool = False
    """Is the last of the prompts only the beginning of a turn, which the target goes on with?"""
    role: int = USER
    _given: list[tuple[int, int]] = field(default_factory=list)
    _left: int = 0

    def __post_init__(self) -> None:
        self._begin(self.template.opening, USER)

    def next(self, sampled: int) -> tuple[int, int]:
        """The next token, and whose it is; `sampled` is what the target would say."""
        if self._given:
            return self._given.pop(0)
        self._left -= 1
        role, ended = self.role, sampled in self.template.ends
        if ended or self._left <= 0:
            self._turn(sampled if ended else None)
            if not ended and self._given:
                return self._given.pop(0)
        return sampled, role

    def _turn(self, end: int | None) -> None:
        to_user = self.role == ASSISTANT
        between = list(self.template.to_user if to_user else self.template.to_assistant)
        if end is not None and between and between[0] in self.template.ends:
            between.pop(0)  # the target has said it
        self._begin(between, USER if to_user else ASSISTANT)

    def _begin(self, between: list[int], role: int) -> None:
        self._given = [(token, GIVEN) for token in between]
        self.role = role
        least, most = self.longest
        self._left = int(self.rng.integers(least, most + 1))
        if role == USER and self.prompts:
            self._given += [(token, USER) for token in self.prompts.pop(0)]
            if self.prompts or not self.unfinished:
                self._given += [(token, GIVEN) for token in self.template.to_assistant]
                self.role = ASSISTANT
