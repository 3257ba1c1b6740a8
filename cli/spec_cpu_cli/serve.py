"""`spec-cpu serve`: the model as a service on this machine."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spec_cpu import defaults
from spec_cpu.errors import UsageError
from spec_cpu_cli import options as opt
from spec_cpu_cli.command import OUTPUT
from spec_cpu_cli.signature import with_options
from spec_cpu_cli.terminal import print_aside

if TYPE_CHECKING:
    from spec_cpu.pairing import ModelChoice
    from spec_cpu.serve.engine.engine import Engine

_NEEDED = ("starlette", "uvicorn", "pydantic", "prometheus_client")
_SERVER, _LIMITS = "Server", "Limits"
_MOST_KEYS = 2**20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the server is reached, and by whom."""

    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Where to listen. Beyond this machine an --api-key is needed.",
            rich_help_panel=_SERVER,
        ),
    ] = defaults.HOST
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="The port; 0: any free one.", rich_help_panel=_SERVER
        ),
    ] = defaults.PORT
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            help="Answer those alone who send this key. May be repeated.",
            show_default="none",
            rich_help_panel=_SERVER,
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            callback=opt.home,
            metavar="FILE",
            help="A file of such keys, one a line.",
            show_default="none",
            rich_help_panel=_SERVER,
        ),
    ] = None
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Pages that may ask from a browser, such as https://example.org; `*`: any page. "
            "May be repeated.",
            show_default="none but the server's own",
            rich_help_panel=_SERVER,
        ),
    ] = None
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            min=0,
            help="Seconds that answers have to end by themselves after Ctrl-C.",
            rich_help_panel=_SERVER,
        ),
    ] = defaults.GRACE
    log_prompts: Annotated[
        bool,
        typer.Option(
            "--log-prompts",
            help="Write what is asked on standard error, too.",
            rich_help_panel=OUTPUT,
        ),
    ] = False

    @property
    def keys(self) -> list[str]:
        """All of them. Raises UsageError for a file that has none, or cannot be read."""
        keys = list(self.api_key or ())
        if self.api_key_file is not None:
            keys += _read_keys(self.api_key_file)
        if not all(key.strip() for key in keys):
            raise UsageError("--api-key is empty: give some text")
        return keys


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """How much is done at a time, and for one request."""

    slots: Annotated[
        int | None,
        typer.Option(
            "--slots",
            "-np",
            "--parallel",
            min=1,
            max=defaults.MAX_SLOTS,
            help="Conversations that are answered at the same time.",
            show_default=f"what memory allows, at most {defaults.SLOTS}",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    queue: Annotated[
        int,
        typer.Option(
            "--queue", min=0, help="Requests that may wait for a slot.", rich_help_panel=_LIMITS
        ),
    ] = defaults.QUEUE
    max_gap: Annotated[
        int,
        typer.Option(
            "--max-gap",
            min=1,
            help="Milliseconds that an answer may wait for its next token while the prompts of "
            "others are read.",
            rich_help_panel=_LIMITS,
        ),
    ] = defaults.MAX_GAP
    cache_ram: Annotated[
        int,
        typer.Option(
            "--cache-ram",
            "-cram",
            min=0,
            metavar="MIB",
            help="Memory for conversations that may go on, in MiB; 0: none.",
            rich_help_panel=_LIMITS,
        ),
    ] = defaults.CACHE_RAM
    shared_memory: Annotated[
        bool,
        typer.Option(
            "--shared-memory",
            help="Guess from what other clients said, too: they might notice.",
            rich_help_panel=_LIMITS,
        ),
    ] = False
    max_prompt: Annotated[
        int | None,
        typer.Option(
            "--max-prompt",
            min=1,
            help="The most tokens that a prompt may have.",
            show_default="what --ctx holds",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    max_body: Annotated[
        int,
        typer.Option(
            "--max-body",
            min=1,
            help="The most bytes that a request may have.",
            rich_help_panel=_LIMITS,
        ),
    ] = defaults.MAX_BODY
    max_time: Annotated[
        float,
        typer.Option(
            "--max-time",
            min=0.1,
            help="Seconds after which an answer is cut, its wait among them.",
            rich_help_panel=_LIMITS,
        ),
    ] = defaults.MAX_TIME


@with_options
def serve(
    max_tokens: opt.MaxTokens = -1,
    *,
    server: ServerOptions,
    limits: LimitOptions,
    models: opt.ModelOptions,
    drafting: opt.DraftOptions,
    sampling: opt.SamplingOptions,
) -> None:
    """Answer over HTTP, as OpenAI's clients ask, and on a page for the browser.

    Editors, scripts and chat programs that speak OpenAI's API use it at http://127.0.0.1:8080/v1,
    and a browser at http://127.0.0.1:8080/. Settings of tokens hold where a request has none of its
    own. Ctrl-C ends it.
    """
    _check_installed()
    from spec_cpu.serve.http.server import address, listen
    from spec_cpu.serve.http.server import serve as run_server
    from spec_cpu.serve.http.service import Service
    from spec_cpu.serve.http.settings import HttpSettings
    from spec_cpu_cli.startup import EXIT_CODE

    choice = models.choice
    settings = HttpSettings(
        name=_name(choice),
        host=server.host,
        port=server.port,
        api_keys=server.keys,
        cors_origins=server.cors_origin or (),
        sampling=sampling.params,
        seed=sampling.seed,
        rule=drafting.rule,
        max_tokens=None if max_tokens == opt.MOST_TOKENS else max_tokens,
        max_body=limits.max_body,
        max_prompt=limits.max_prompt,
        max_time=limits.max_time,
        log_prompts=server.log_prompts,
    )
    with listen(settings.host, settings.port) as listening:
        engine = _open_engine(choice, models, drafting, limits)
        if not models.quiet:
            url = address(listening)
            print_aside(f"{settings.name} answers at {url} (programs: {url}/v1); Ctrl-C ends it")
        with _log_on_standard_error(quiet=models.quiet):
            in_order = run_server(Service(engine, settings), listening, server.grace, print_aside)
    if not in_order:
        raise typer.Exit(EXIT_CODE)


def _open_engine(
    choice: ModelChoice,
    models: opt.ModelOptions,
    drafting: opt.DraftOptions,
    limits: LimitOptions,
) -> Engine:
    """Fetch and load the chosen models, with bars for both unless they are to be quiet."""
    from spec_cpu.serve.engine.loading import load_engine
    from spec_cpu_cli.answer import show_notices

    opt.check_looks_up(choice, lookup=drafting.lookup)
    target, drafts = opt.fetched(choice, models)
    with opt.loading(models) as progress:
        engine, notices = load_engine(
            target,
            drafts,
            ctx=models.ctx,
            draft_ctx=models.draft_ctx,
            threads=models.threads,
            kernels=models.kernels,
            k=drafting.draft_tokens,
            shape=drafting.shape,
            lookup=drafting.lookup or (),
            recalibrate=models.recalibrate,
            rpc=models.rpc,
            slots=limits.slots,
            queue=limits.queue,
            max_gap=limits.max_gap / 1000,
            cache_ram=limits.cache_ram,
            shared_memory=limits.shared_memory,
            progress=progress,
        )
    if not models.quiet:
        told = [choice.notice, *notices] if choice.notice else notices
        show_notices(told)
    return engine


def _check_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f'serve needs {", ".join(missing)}: pip install ".[serve]", in the folder of spec-cpu'
        )


def _name(choice: ModelChoice) -> str:
    """What clients call the model: as it was called here, without folders."""
    target = choice.target
    return Path(target).stem if str(target).endswith(".gguf") else str(target)


def _read_keys(file: Path) -> list[str]:
    from spec_cpu.text.files import decode, read_bytes

    text = decode(read_bytes(file, _MOST_KEYS), file)
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UsageError(f"--api-key-file: {file} has no keys: write one a line")
    return keys


@contextmanager
def _log_on_standard_error(*, quiet: bool) -> Iterator[None]:
    """A line for each request, and whatever goes wrong; the latter alone if `quiet` is set."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    ours, theirs = logging.getLogger("spec_cpu"), logging.getLogger("uvicorn")
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    theirs.setLevel(logging.WARNING)
    for log in (ours, theirs):
        log.addHandler(handler)
    try:
        yield
    finally:
        for log in (ours, theirs):
            log.removeHandler(handler)
