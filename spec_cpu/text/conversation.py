"""A conversation in tokens: only the chat template's own marks become control tokens.

A vocabulary has tokens such as `<|im_end|>` that a template sets turns apart with. Where a text
spells one it must stay text: whoever can write a mark can speak for the system, or end the turn in
which they are quoted.

The template gets texts in which each such name is cut in two by a character that is used nowhere
else. What comes out whole is then the template's own, wherever it put the texts. A template may
change them on the way, and make a mark of what was none (`lower`, say): so it is asked again with
texts that are cut at every character that could begin or end a mark. Where both ways give the same
marks, the first is right; else the second, in which no text can be part of a mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spec_cpu.llama.chat import ChatTemplate, Turn
from spec_cpu.llama.vocab import Vocab

_SPARE = range(0xE000, 0xF900)  # private use: characters that mean nothing
_SPACE = " \t\n\v\f\r"  # what llama.cpp strips behind some marks


def read_conversation(
    template: ChatTemplate,
    vocab: Vocab,
    messages: Sequence[Turn],
    tools: Sequence[Mapping[str, Any]] = (),
) -> tuple[str, list[int]]:
    """`messages` up to where the next answer begins.

    Args:
        tools: functions that may be called, as OpenAI describes them.

    Returns:
        The text without a BOS of the template's own, and the tokens, with one if the model wants
        it. Where no message spells a mark, they are those of the whole text.

    Raises:
        UsageError: the template refuses the conversation.
    """
    said = _Said(messages, tools)
    marks = _marks(template, vocab, said)
    text = said.rendered(template, marks.cut_names)
    if any(marks.edges.search(one) for one in said.texts):
        wary = said.rendered(template, marks.cut_edges)
        if marks.found(wary) != marks.found(text):
            text = wary
    bos = vocab.text(vocab.bos).decode("utf-8", "replace")
    return text.removeprefix(bos).replace(marks.cut, ""), marks.tokenize(text)


@dataclass(frozen=True)
class _Said:
    """What a template is given: turns, and tools."""

    messages: Sequence[Turn]
    tools: Sequence[Mapping[str, Any]]

    @cached_property
    def texts(self) -> list[str]:
        """Every text in it that a person or a model may have written."""
        return list(_texts([*self.messages, *self.tools]))

    def rendered(self, template: ChatTemplate, change: Callable[[str], str]) -> str:
        """What the template makes of it when every text is changed."""
        return template.render(_changed(self.messages, change), _changed(self.tools, change))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from () if _is_name(key) else (key,)
            yield from () if _is_structure(key, inner) else _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            key if _is_name(key) else change(key): inner
            if _is_structure(key, inner)
            else _changed(inner, change)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_changed(inner, change) for inner in value]
    return value


def _is_name(key: str) -> bool:
    """Is it a word, by which a template may look things up? No mark is one."""
    return key.isidentifier()


def _is_structure(key: str, value: Any) -> bool:
    """Is it a word that a template goes by, such as a turn's role?"""
    return key in ("role", "type") and isinstance(value, str) and _is_name(value)


def _marks(template: ChatTemplate, vocab: Vocab, said: _Said) -> _Marks:
    texts = "\n".join(said.texts)
    cut = next(one for one in map(chr, _SPARE) if one not in texts and one not in template.source)
    ids = vocab.controls
    # Other special tokens are a text's own to use, but for those that the template uses as marks.
    spelt = {name: i for name, i in vocab.user_defined.items() if name.strip() and name in texts}
    if spelt:
        blank = said.rendered(template, lambda text: re.sub(r"\S", cut, text))
        ids = ids | {name: i for name, i in spelt.items() if name in blank}
    return _Marks(vocab, ids, cut)


@dataclass(frozen=True)
class _Marks:
    """The tokens that only a template may write, by name, and the character that cuts names."""

    vocab: Vocab
    ids: dict[str, int]
    cut: str

    def cut_names(self, text: str) -> str:
        """`text` with every mark in it cut, and with cuts around it if a mark contains it."""
        present = [name for name in self.ids if name in text]
        if present:
            begins = f"(?={_any(present)})(.)"
            text = re.sub(begins, rf"\1{self.cut}", text, flags=re.DOTALL)
        core = text.strip()
        if core and any(core in name for name in self.ids):  # a template may write the rest of it
            text = text.replace(core, f"{self.cut}{core}{self.cut}")
        return text

    def cut_edges(self, text: str) -> str:
        """`text` cut around every character that a mark begins or ends with."""
        return self.edges.sub(rf"{self.cut}\g<0>{self.cut}", self.cut_names(text))

    @cached_property
    def edges(self) -> re.Pattern[str]:
        """The characters that marks begin and end with."""
        ends = {name[0] for name in self.ids} | {name[-1] for name in self.ids}
        cases = {case for end in ends if end.strip() for case in (end, end.lower(), end.upper())}
        return re.compile(_any(sorted(cases)))

    def found(self, text: str) -> list[str]:
        """The marks in `text`, in order."""
        return self._split(text)[1::2]

    def tokenize(self, text: str) -> list[int]:
        """The tokens of `text`. What was cut is text, up to the marks around it."""
        parts = self._split(text)
        tokens: list[int] = []
        run, first = "", True  # a row of parts without a cut: they are tokenized as one
        for i, part in enumerate(parts):
            if self.cut not in part:
                run += part
                continue
            tokens += self.vocab.tokenize(run, add_special=first)
            swallowed = i and self.vocab.strips_right(self.ids[parts[i - 1]])
            tokens += self._as_text(part.lstrip(_SPACE) if swallowed else part)
            run, first = "", False
        return tokens + self.vocab.tokenize(run, add_special=first)

    def _split(self, text: str) -> list[str]:
        """Text, a mark, text, a mark, ... text."""
        # A mark of one character cannot be cut: beside a cut it is text.
        present = [name for name in self.ids if len(name) > 1 and name in text]
        return re.split(f"({_any(present)})", text)

    def _as_text(self, part: str) -> list[int]:
        whole = self._text_tokens(part.replace(self.cut, ""))
        if self._own.isdisjoint(whole):
            return whole
        # llama.cpp finds some marks in any text, but not if their parts come one by one.
        return [token for piece in part.split(self.cut) for token in self._text_tokens(piece)]

    def _text_tokens(self, text: str) -> list[int]:
        return self.vocab.tokenize(text, add_special=False, parse_special=False)

    @cached_property
    def _own(self) -> frozenset[int]:
        return frozenset(self.ids.values())


def _any(names: Sequence[str]) -> str:
    """A pattern for any of `names`, the longest first; for nothing where there are none."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
