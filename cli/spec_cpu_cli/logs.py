"""`spec-cpu logs`: conversations that were kept with --log."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cpu_cli import options as opt
from spec_cpu_cli.chat.notes import beginning
from spec_cpu_cli.removal import Yes, confirm
from spec_cpu_cli.terminal import print_text

if TYPE_CHECKING:
    from spec_cpu.conversations.log import Logged

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
    from spec_cpu.conversations.log import Log

    with Log() as log:
        found = log.find(query, most)
        if as_json:
            print(json.dumps([_as_json(one) for one in found], ensure_ascii=False))
        elif not found:
            said = "" if query is None else " in which that was said"
            print_text(
                f"there is no conversation{said} in {log.path}: --log of run and chat keeps them"
            )
        else:
            for one in found:
                print_text(_line(one))


@app.command()
def show(
    number: Annotated[
        int | None, typer.Argument(help="Its number in the list.", show_default="the latest")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Print a conversation."""
    from spec_cpu.conversations.log import Log
    from spec_cpu.errors import UsageError

    with Log() as log:
        found = log.latest() if number is None else log.read(number)
    if found is None:
        raise UsageError("there is no conversation yet: --log of run and chat keeps them")
    if as_json:
        print(json.dumps(_as_json(found), ensure_ascii=False))
    else:
        print(found.conversation.as_text(), end="")


@app.command()
def path() -> None:
    """Print where they are kept."""
    from spec_cpu.conversations.log import log_file

    print(log_file())


@app.command()
def clear(yes: Yes = False) -> None:
    """Remove them all: nothing of what was said is kept."""
    from spec_cpu.conversations.log import Log

    with Log() as log:
        if not yes:
            confirm(f"Remove all conversations from {log.path}?")
        n = log.clear()
        print(f"removed {n} conversation{'' if n == 1 else 's'} from {log.path}")


def _line(one: Logged) -> str:
    from spec_cpu.conversations.edit import questions

    asked = questions(one.conversation.messages)
    shown = beginning(asked[0]) if asked else ""
    when = datetime.fromisoformat(one.updated).astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{one.number:4}  {when}  {len(asked):3} asked  {one.conversation.models.name}  {shown}"


def _as_json(one: Logged) -> dict[str, Any]:
    record = asdict(one)
    return {**record.pop("conversation"), **record}
