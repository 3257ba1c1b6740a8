"""Tables in narrow terminals: names stay whole, what is of lesser worth goes first."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from spec_cpu_cli.terminal import print_table

NAMES = st.text("abc-0123", min_size=1, max_size=30)


def shown(names: list[str], width: int) -> list[str]:
    """The lines of a table of names, numbers and notes."""
    table = Table("name", box=None, pad_edge=False)
    table.add_column("speed", no_wrap=True)
    table.add_column("note")
    table.columns[0].no_wrap = True
    for name in names:
        table.add_row(name, "12.5 (1 to 2) tok/s", "some words of lesser worth")
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    print_table(console, table, spare=("note", "speed"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@given(names=st.lists(NAMES, min_size=1, max_size=4), width=st.integers(1, 120))
def test_no_name_is_cut_at_any_width(names: list[str], width: int) -> None:
    lines = shown(names, width)
    assert all(len(line.rstrip()) <= width for line in lines)
    longest = max(map(len, ["name", *names]))
    if longest <= width:
        firsts = [line[:longest].rstrip() for line in lines[1:]]
        assert [first for first in firsts if first] == names
    else:
        assert "".join("".join(lines).split()) == "name" + "".join(names)


@given(width=st.integers(8, 120))
def test_what_is_shown_of_a_number_is_all_of_it(width: int) -> None:
    lines = shown(["a-name"], width)
    assert ("speed" in lines[0]) == ("12.5 (1 to 2) tok/s" in lines[1])
    assert ("speed" in lines[0]) or "note" not in lines[0]
