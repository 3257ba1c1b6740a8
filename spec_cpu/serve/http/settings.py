"""What a person who runs the server decides."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from spec_cpu import defaults
from spec_cpu.arguments import check_seed, one_of
from spec_cpu.cycle.verify import RULES
from spec_cpu.errors import UsageError
from spec_cpu.sampling.pipeline import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How the server is reached, by whom, and what a request may ask for.

    Attributes:
        name: of the model, as clients see it.
        host, port: where it listens; port 0: any that is free.
        api_keys: who knows one may ask; empty: everybody on this machine.
        cors_origins: pages of these origins may ask from a browser; `*`: of any.
        sampling, seed, rule, max_tokens: where a request does not say; None: until the answer ends.
        max_body: bytes. `max_prompt`: tokens; None: what the context holds. `max_time`: seconds
            that an answer may take, with its wait.
        log_prompts: write what is asked and answered into the log?

    Raises:
        UsageError: it would be open to others without a key.
    """

    name: str
    host: str = defaults.HOST
    port: int = defaults.PORT
    api_keys: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = None
    rule: str = defaults.RULE
    max_tokens: int | None = None
    max_body: int = defaults.MAX_BODY
    max_prompt: int | None = None
    max_time: float = defaults.MAX_TIME
    log_prompts: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        one_of("rule", self.rule, RULES)
        if not self.api_keys and not is_loopback(self.host):
            raise UsageError(
                f"at {self.host} others can reach this server: give an `api_key`, or leave out "
                f"`host` to listen on {defaults.HOST} alone"
            )


def is_loopback(host: str) -> bool:
    """Can only programs of this machine mean it?"""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
