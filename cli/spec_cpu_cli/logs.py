"""`spec-cpu logs`: conversations that were kept with --log."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu_cli import options as opt
from spec_cpu_cli.chat.notes import beginning
from spec_cpu_cli.removal import Yes, confirm, removing
from spec_cpu_cli.terminal import print_table, print_text, table_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from spec_cpu.conversations.log import Logged

_QUESTION_WIDTH = 30  # columns at least, before others are left out for it

app = typer.Typer(
    help="Conversations that were kept with --log: list, show, path, clear.",
    invoke_without_command=True,
    callback=opt.help_alone,
)


@app.command("list")
def list_(
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            "-q",
            help="Only conversations in which this was said.",
            show_default="all of them",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", "-n", min=1, help="How many to list, the latest first.")
    ] = 20,
    as_json: opt.AsJson = False,
) -> None:
    """List the latest conversations, or those in which something was said."""
    from spec_cpu.conversations.log import Log, log_file

    found: list[Logged] = []
    if log_file().exists():
        with Log() as log:
            found = log.find(query, most)
    if as_json:
        print(json.dumps([_as_json(one) for one in found], ensure_ascii=False))
    elif not found:
        said = "" if query is None else " in which that was said"
        print_text(
            f"there is no conversation{said} in {log_file()}: --log of run and chat keeps them"
        )
    else:
        print_table(table_console(), _table(found), spare=("with", "asked"))


@app.command()
def show(
    number: Annotated[
        int | None, typer.Argument(help="Its number in the list.", show_default="the latest")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Print a conversation."""
    from spec_cpu.conversations.log import Log, log_file
    from spec_cpu.errors import UsageError

    found = None
    if log_file().exists():
        with Log() as log:
            found = log.latest() if number is None else log.read(number)
    if found is None:
        raise UsageError("there is no conversation yet: --log of run and chat keeps them")
    if as_json:
        print(json.dumps(_as_json(found), ensure_ascii=False))
    else:
        print_text(found.conversation.as_text().rstrip("\n"))


@app.command()
def path() -> None:
    """Print where they are kept."""
    from spec_cpu.conversations.log import log_file

    print(log_file())


@app.command()
def clear(yes: Yes = False) -> None:
    """Remove them all, and what was typed in chat: nothing of what was said is kept."""
    from spec_cpu.conversations.log import Log
    from spec_cpu_cli.chat.history import history_file

    typed = history_file()
    with Log() as log:
        if not yes:
            confirm(f"Remove all conversations, and what was typed in chat, from {typed.parent}?")
        n = log.clear()
        print_text(f"removed {n} conversation{'' if n == 1 else 's'} from {log.path}")
    if typed.exists():
        with removing(typed, "writing"):
            typed.unlink(missing_ok=True)
        print_text(f"removed {typed}")


def _table(found: Sequence[Logged]) -> Table:
    from rich.table import Table

    from spec_cpu.conversations.edit import questions

    names = ("number", "when", "asked", "first", "with")
    table = Table(*names, box=None, pad_edge=False, show_header=False)
    table.columns[0].justify = table.columns[2].justify = "right"
    table.columns[1].no_wrap = True
    table.columns[3].min_width = _QUESTION_WIDTH
    for one in found:
        asked = questions(one.conversation.messages)
        first = beginning(asked[0]) if asked else ""
        when = datetime.fromisoformat(one.updated).astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(
            str(one.number), when, f"{len(asked)} asked", first, one.conversation.models.name
        )
    return table


def _as_json(one: Logged) -> dict[str, Any]:
    record = asdict(one)
    return {**record.pop("conversation"), **record}
