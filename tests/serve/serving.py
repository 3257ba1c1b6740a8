"""What tests of the server share: a chat template, and what makes a client of a server."""

from __future__ import annotations

from collections.abc import Callable

from starlette.testclient import TestClient

# ChatML, with functions and calls as Hermes and Qwen have them.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}"
    "{% endfor %}</tools><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
MARKS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")

Serve = Callable[..., TestClient]
