"""What all requests share: the engine, the settings, and what is known of the model's template."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from starlette.requests import Request

from spec_cpu.serve.engine.engine import Engine
from spec_cpu.serve.http import calls
from spec_cpu.serve.http.metrics import Metrics
from spec_cpu.serve.http.settings import HttpSettings

log = logging.getLogger("spec_cpu.serve")

_PROBE = "a_function_to_look_for"


@dataclass
class Service:
    """The model as it is served.

    Attributes:
        closing: no request is taken any more.
    """

    engine: Engine
    settings: HttpSettings
    created: int = field(default_factory=lambda: int(time.time()))
    closing: bool = False

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.engine)

    @cached_property
    def call_format(self) -> calls.Format:
        """How the model writes calls of functions."""
        return calls.format_of(self.engine.model.chat_template.source)

    @cached_property
    def takes_tools(self) -> bool:
        """Has the model's template a place for functions?"""
        tool = {"type": "function", "function": {"name": _PROBE, "parameters": {}}}
        template = self.engine.model.chat_template
        return _PROBE in template.render([{"role": "user", "content": "."}], [tool])


def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)
