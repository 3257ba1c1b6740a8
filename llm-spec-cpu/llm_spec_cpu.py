"""`llm` with the models of spec-cpu: `llm -m spec-cpu/NAME "Why is the sky blue?"`."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from typing import Any

import llm
from pydantic import Field

import spec_cpu
from spec_cpu import defaults
from spec_cpu.errors import SpecCpuError
from spec_cpu.heads.file import is_head
from spec_cpu.models.catalog import FileSource, load_catalog

_PREFIX = "spec-cpu"
_ANY_FILE = "gguf"  # the name of a model whose file is an option


@llm.hookimpl
def register_models(register: Callable[[llm.Model], None]) -> None:
    """The pairs and the models of the catalogue by their names, and one for any file."""
    try:
        catalogue = load_catalog()
    except SpecCpuError:
        return  # `spec-cpu models list` says what is wrong; llm has other models, too
    for name in catalogue.pairs:
        register(SpecCpu(name, pair=name))
    for name, model in catalogue.models.items():
        if name not in catalogue.pairs and not _is_head(model.source):
            register(SpecCpu(name, target=name))
    register(SpecCpu(_ANY_FILE))


def _is_head(source: object) -> bool:
    """Is it a file that guesses for a model, and answers nothing itself?"""
    return isinstance(source, FileSource) and source.path.is_file() and is_head(source.path)


class SpecCpu(llm.Model):
    """A model, loaded once it is asked, and kept for the rest of a conversation."""

    can_stream = True

    class Options(llm.Options):  # type: ignore[misc]
        """How an answer is made."""

        target: str | None = Field(None, description="The model that answers: a GGUF file")
        draft: str | None = Field(None, description="What guesses ahead: a small GGUF, ngram, none")
        ctx: int | None = Field(None, description="Tokens that prompt and answer may have")
        max_tokens: int = Field(defaults.MAX_TOKENS, description="The most tokens of an answer")
        temperature: float = Field(
            defaults.TEMPERATURE, description="0: always the likeliest token"
        )
        top_k: int = Field(defaults.TOP_K, description="Only the K likeliest tokens; 0: all")
        top_p: float = Field(defaults.TOP_P, description="Only tokens that make up this share")
        min_p: float = Field(defaults.MIN_P, description="Only tokens at least this likely")
        seed: int | None = Field(None, description="The same seed gives the same text")

    def __init__(self, name: str, *, target: str | None = None, pair: str | None = None) -> None:
        """The model called `name`: a target or a pair of the catalogue; neither: a file."""
        self.model_id = f"{_PREFIX}/{name}"
        self._target = target
        self._pair = pair
        self._loaded: tuple[Any, spec_cpu.Session] | None = None
        atexit.register(self.close)

    def __str__(self) -> str:
        return f"spec-cpu: {self.model_id}"

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str]:
        """The answer, a step at a time. Raises llm.ModelError with one line of what is wrong."""
        options: Any = prompt.options
        try:
            session = self._session(options)
            session.messages = _turns_before(prompt, conversation)
            steps = session.generate(
                prompt.prompt,
                max_tokens=options.max_tokens,
                seed=options.seed,
                sampling=spec_cpu.SamplingParams(
                    temperature=options.temperature,
                    top_k=options.top_k,
                    top_p=options.top_p,
                    min_p=options.min_p,
                ),
            )
            for step in steps:
                yield step.text
            if session.held_back:
                yield session.held_back
        except SpecCpuError as error:
            raise llm.ModelError(str(error)) from error
        stats = session.stats
        response.set_usage(input=stats.prompt_tokens, output=stats.tokens)
        response.response_json = {
            "finish": session.finish,
            "seed": session.seed,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
            "tokens_per_second": stats.tokens_per_second,
            "speedup": stats.speedup,
        }

    def close(self) -> None:
        """Free the model, if it was loaded."""
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None

    def _session(self, options: Any) -> spec_cpu.Session:
        """The models that `options` name, loaded now unless they are the last ones."""
        wanted = (options.target, options.draft, options.ctx)
        if self._loaded is None or self._loaded[0] != wanted:
            target = options.target or self._target
            if target is None and self._pair is None:
                raise llm.ModelError(f"{self.model_id} needs a file: -o target FILE")
            self.close()
            pair = None if options.target else self._pair
            loaded = spec_cpu.load(target, options.draft, pair=pair, ctx=options.ctx)
            self._loaded = (wanted, loaded)
        return self._loaded[1]


def _turns_before(
    prompt: llm.Prompt, conversation: llm.Conversation | None
) -> list[spec_cpu.Message]:
    """The system prompt, and what was asked and answered."""
    earlier = conversation.responses if conversation else []
    systems = [one for one in (prompt.system, *(each.prompt.system for each in earlier)) if one]
    turns = [spec_cpu.Message(role="system", content=systems[0])] if systems else []
    for each in earlier:
        turns.append(spec_cpu.Message(role="user", content=each.prompt.prompt))
        turns.append(spec_cpu.Message(role="assistant", content=each.text()))
    return turns
