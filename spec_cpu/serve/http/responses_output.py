"""What /v1/responses gives: items that grow, an event for each change, the response around."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from spec_cpu.llama.vocab import Vocab
from spec_cpu.serve.engine.request import Request
from spec_cpu.serve.http import logprobs
from spec_cpu.serve.http.call_object import Said
from spec_cpu.serve.http.choice import CallBegan, Choice, Shown, Step, Thought, usage
from spec_cpu.serve.http.errors import ApiError
from spec_cpu.serve.http.responses_input import ResponsesRequest

Data = dict[str, Any]

_MESSAGE, _THOUGHTS, _CALL = "message", "reasoning", "function_call"
_IDS = {_MESSAGE: "msg", _THOUGHTS: "rs", _CALL: "fc"}
_TEXTS = {_MESSAGE: "output_text", _THOUGHTS: "reasoning_text"}
_EMPTY_PARTS: dict[str, Data] = {
    _MESSAGE: {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    _THOUGHTS: {"type": "reasoning_text", "text": ""},
}


class Items:
    """The items of a response.

    Attributes:
        done: those that are complete.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._item: Data | None = None  # the one that grows
        self.done: list[Data] = []

    def add(self, step: Step) -> Iterator[Data]:
        """The events of a step."""
        probs = logprobs.chat(self._vocab, step.texts)
        for shown in step.shown:
            yield from self._add(shown, probs)
            probs = []

    def close(self, *, complete: bool) -> Iterator[Data]:
        """No more follows. There is always a message or a call."""
        if not self._calls_or_says():
            yield from self._begin(_MESSAGE)
        yield from self._end("completed" if complete else "incomplete")

    def _calls_or_says(self) -> bool:
        items = [*self.done, *([self._item] if self._item else [])]
        return any(item["type"] != _THOUGHTS for item in items)

    def _add(self, shown: Shown, probs: list[Data]) -> Iterator[Data]:
        if isinstance(shown, CallBegan):
            yield from self._end("completed")
            yield from self._begin(_CALL, call_id=shown.id, name=shown.name, arguments="")
            return
        if isinstance(shown, Said | Thought):
            kind = _MESSAGE if isinstance(shown, Said) else _THOUGHTS
            if self._item is None or self._item["type"] != kind:
                yield from self._end("completed")
                yield from self._begin(kind)
            assert self._item is not None
            part = self._item["content"][0]
            part["text"] += shown.text
            told: Data = {"delta": shown.text}
            if kind == _MESSAGE:
                part["logprobs"] = [*part["logprobs"], *probs]
                told["logprobs"] = probs
            yield self._event(f"{_TEXTS[kind]}.delta", content_index=0, **told)
            return
        assert self._item is not None
        self._item["arguments"] += shown.arguments
        yield self._event("function_call_arguments.delta", delta=shown.arguments)

    def _begin(self, kind: str, **fields: Any) -> Iterator[Data]:
        item: Data = {
            "id": f"{_IDS[kind]}_{secrets.token_hex(12)}",
            "type": kind,
            "status": "in_progress",
            **fields,
        }
        if kind == _MESSAGE:
            item["role"] = "assistant"
        if kind == _THOUGHTS:
            item["summary"] = []
        if kind != _CALL:
            item["content"] = []
        self._item = item
        yield self._placed("output_item.added", item=dict(item))
        if kind != _CALL:
            part = dict(_EMPTY_PARTS[kind])
            item["content"] = [part]
            yield self._event("content_part.added", content_index=0, part=dict(part))

    def _end(self, status: str) -> Iterator[Data]:
        item = self._item
        if item is None:
            return
        if item["type"] == _CALL:
            arguments = item["arguments"]
            name = item["name"]
            yield self._event("function_call_arguments.done", name=name, arguments=arguments)
        else:
            part = item["content"][0]
            told: Data = {"text": part["text"]}
            if item["type"] == _MESSAGE:
                told["logprobs"] = part["logprobs"]
            yield self._event(f"{_TEXTS[item['type']]}.done", content_index=0, **told)
            yield self._event("content_part.done", content_index=0, part=part)
        item["status"] = status
        yield self._placed("output_item.done", item=item)
        self._item = None
        self.done.append(item)

    def _event(self, name: str, /, **fields: Any) -> Data:
        assert self._item is not None
        return self._placed(name, item_id=self._item["id"], **fields)

    def _placed(self, name: str, /, **fields: Any) -> Data:
        return {"type": f"response.{name}", "output_index": len(self.done), **fields}


class Reply:
    """The response around the items."""

    def __init__(
        self, response_id: str, model: str, given: ResponsesRequest, wanted: Request
    ) -> None:
        sampling = wanted.sampling
        self._head: Data = {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "instructions": given.instructions,
            "max_output_tokens": given.max_output_tokens,
            "metadata": given.metadata or {},
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "text": {"format": {"type": "text"}},
            "tool_choice": given.tool_choice or "auto",
            "tools": [
                tool.model_dump(exclude_none=True) | {"strict": False} for tool in given.tools or ()
            ],
            "truncation": "disabled",
        }

    def begun(self) -> Data:
        return self._with("in_progress")

    def failed(self, error: ApiError) -> Data:
        code = error.code or "server_error"
        return self._with("failed", error={"code": code, "message": error.message})

    def ended(self, items: Sequence[Data], choice: Choice) -> Data:
        """Complete, or cut."""
        cut = choice.finish_reason == "length"
        counted = usage([choice])
        return self._with(
            "incomplete" if cut else "completed",
            output=list(items),
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            usage={
                "input_tokens": counted["prompt_tokens"],
                "input_tokens_details": counted["prompt_tokens_details"],
                "output_tokens": counted["completion_tokens"],
                "output_tokens_details": counted["completion_tokens_details"],
                "total_tokens": counted["total_tokens"],
            },
        )

    def _with(self, status: str, **fields: Any) -> Data:
        ending: Data = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**self._head, "status": status, **ending, **fields}
