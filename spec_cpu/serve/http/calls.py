"""Calls of functions in an answer, as models of several families write them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection
from typing import Literal

from spec_cpu.serve.http.call_object import Arguments, Began, Braces, CallObject, Event, Said
from spec_cpu.serve.http.thoughts import open_length

Format = Literal["tags", "list", "object"]
"""`<tool_call>{...}</tool_call>` (Hermes, Qwen), `[TOOL_CALLS]...` (Mistral), `{...}` (Llama 3)."""

TAG, END_TAG, LIST, ARGUMENTS, ID, PYTHON = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"),
)
MARKS = (TAG, END_TAG, LIST, ARGUMENTS, ID, PYTHON)

_OPENINGS = {"tags": f'{TAG}\n{{"name": "', "list": f'{LIST}[{{"name": "', "object": '{"name": "'}
_NAMED = re.compile(r"\s*([A-Za-z0-9_.-]+)(?:\[CALL_ID\][A-Za-z0-9]*)?(?:\[ARGS\])?\s*(?=\{)")
_NAMED_LENGTH = 160  # characters that a name and an id take at most


def format_of(template: str) -> Format:
    """How a model with this chat template writes calls."""
    if TAG in template:
        return "tags"
    return "list" if LIST in template else "object"


def opening(form: Format, name: str | None) -> str:
    """What an answer begins with that is a call: of the function `name`, or of any."""
    key = "parameters" if form == "object" else "arguments"
    return _OPENINGS[form] + (f'{name}", "{key}": ' if name else "")


def new_id(form: Format) -> str:
    """A name for a call. Mistral's templates take nine letters and digits alone."""
    return secrets.token_hex(5)[:9] if form == "list" else f"call_{secrets.token_hex(12)}"


class Calls:
    """Splits an answer into text and calls, as it comes."""

    def __init__(self, form: Format, names: Collection[str]) -> None:
        """`names`: the functions that there are."""
        self._form = form
        self._names = names
        self._held = ""
        self._dropped = ""  # the mark of the first call and space before it, should it be none
        self._call: CallObject | None = None
        self._arguments: Braces | None = None  # of a call whose name stands before them
        self._state: Callable[[], list[Event] | None] = (
            self._start if form == "object" else self._text
        )

    def push(self, text: str) -> list[Event]:
        """What `text` completes."""
        self._held += text
        events: list[Event] = []
        while (found := self._state()) is not None:
            events += found
        return events

    def finish(self) -> list[Event]:
        """Nothing follows: what was held back is text."""
        events = self._with_dropped(self._call.finish()) if self._call else []
        if self._held.strip() and self._state != self._behind:
            events.append(Said(self._held))
        self._held = ""
        return events

    # Each state takes what it can of the held text, and returns None where it needs more of it.

    def _start(self) -> list[Event] | None:
        """A call stands at the beginning, or nowhere."""
        bare = self._held.lstrip()
        if not bare or (PYTHON.startswith(bare) and bare != PYTHON):
            return None
        bare = bare.removeprefix(PYTHON).lstrip()
        if not bare:
            return None
        if not bare.startswith("{"):
            self._state = self._plain
            return []
        self._held = bare
        return self._begin()

    def _plain(self) -> list[Event] | None:
        """No call can follow."""
        text, self._held = self._held, ""
        return [Said(text)] if text else None

    def _text(self) -> list[Event] | None:
        """Text up to where calls begin."""
        mark = TAG if self._form == "tags" else LIST
        before, found, rest = self._held.partition(mark)
        if found:
            said = before.rstrip()
            self._dropped = before[len(said) :] + mark
            self._held, self._state = rest, self._open
            return [Said(said)] if said else []
        # Space before a call is dropped with it.
        bare = before[: len(before) - open_length(before, mark)].rstrip()
        self._held = before[len(bare) :]
        return [Said(bare)] if bare else None

    def _open(self) -> list[Event] | None:
        """Behind the mark that calls begin with."""
        bare = self._held.lstrip()
        if not bare:
            return None
        if self._form == "list" and bare.startswith("["):
            self._held, self._state = bare[1:], self._behind
            return []
        if bare.startswith("{"):
            return self._begin()
        return self._named() if self._form == "list" else self._no_call()

    def _named(self) -> list[Event] | None:
        """The name stands before the arguments."""
        found = _NAMED.match(self._held)
        if found is None:
            return self._no_call() if len(self._held) > _NAMED_LENGTH else None
        self._held = self._held[found.end() :]
        self._arguments, self._state = Braces(), self._inside
        return [Began(found[1])]

    def _inside(self) -> list[Event] | None:
        """Within the arguments of a call whose name stands before them."""
        assert self._arguments is not None
        end = self._arguments.end(self._held)
        own, self._held = (self._held, "") if end is None else (self._held[:end], self._held[end:])
        if end is not None:
            self._state = self._text
        return [Arguments(own)] if own else None

    def _no_call(self) -> list[Event]:
        self._state = self._plain
        return [Said(self._dropped)]

    def _begin(self) -> list[Event]:
        self._call = CallObject(self._is_known)
        self._state = self._object
        return []

    def _object(self) -> list[Event] | None:
        """Within a call."""
        assert self._call is not None
        if not self._held:
            return None
        events, self._held = self._call.push(self._held)
        if self._call.done:
            self._call = None
            is_text = any(isinstance(event, Said) for event in events)
            self._state = self._plain if is_text else self._behind
        return self._with_dropped(events)

    def _with_dropped(self, events: list[Event]) -> list[Event]:
        """`events`; what was dropped before them comes back if they are text."""
        if not events:
            return []
        dropped, self._dropped = self._dropped, ""
        return [Said(dropped), *events] if dropped and isinstance(events[0], Said) else events

    def _behind(self) -> list[Event] | None:
        """Behind a call, or before the first of a list: another one, or the end of them."""
        bare = self._held.lstrip("\n\t ,;")
        for mark in (END_TAG, TAG, PYTHON, LIST):
            if mark.startswith(bare) and bare != mark:
                return None
        if bare.startswith("{"):
            self._held = bare
            return self._begin()
        end = END_TAG if self._form == "tags" else "]" if self._form == "list" else PYTHON
        self._held = bare.removeprefix(end)
        self._state = self._start if self._form == "object" else self._text
        return []

    def _is_known(self, name: str) -> bool:
        # A mark says that it is a call, whatever it calls; a bare object may be anything.
        return name in self._names if self._form == "object" else bool(name)
