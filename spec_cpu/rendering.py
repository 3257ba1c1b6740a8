"""A prompt as the target reads it: through the chat template, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec_cpu.errors import UsageError
from spec_cpu.llama.chat import Message
from spec_cpu.llama.model import Model


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the target reads it.

    Attributes:
        text: without a BOS of the template's own, which is what programs take that add one.
        tokens: with a BOS, if the model wants one.
        stops: the strings that end an answer to it.
        notice: what a person should know about the template.
    """

    text: str
    tokens: list[int]
    stops: tuple[str, ...] = ()
    notice: str | None = None


def render(target: Model, before: Sequence[Message] | None, prompt: str) -> Rendered:
    """`prompt` after the turns `before`; None: as it is, outside any conversation.

    Raises:
        UsageError: an empty prompt.
    """
    if not prompt.strip():
        raise UsageError("the prompt is empty: give some text, --file, or standard input")
    vocab = target.vocab
    if before is None:
        rendered = Rendered(prompt, vocab.tokenize(prompt))
    else:
        template = target.chat_template
        text = template.render([*before, Message(role="user", content=prompt)])
        bos = vocab.text(vocab.bos).decode("utf-8", "replace")
        has_bos = bool(bos) and text.startswith(bos)
        tokens = vocab.tokenize(text, add_special=not has_bos)
        text = text.removeprefix(bos)
        rendered = Rendered(text, tokens, template.stops, template.notice)
    if not rendered.tokens:
        raise UsageError("the prompt has no tokens in this model's vocabulary")
    return rendered
