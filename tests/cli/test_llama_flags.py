"""Flags of llama.cpp: understood, or answered with a pointer; the page shows the same table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spec_cpu_cli
import typer
from program import run_program
from spec_cpu_cli import llama_flags
from spec_cpu_cli.app import app

from spec_cpu.errors import UsageError

ROOT: Any = typer.main.get_command(app)
RUN = ROOT.commands["run"]
PAGE = Path(spec_cpu_cli.__file__).parents[2] / "docs" / "from-llama-cli.md"
NAMES = [name for row in llama_flags.SAME for name in row.names]


def parsed(*args: str) -> dict[str, Any]:
    with RUN.make_context("run", list(args), parent=ROOT.context_class(ROOT)) as context:
        return dict(context.params)


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith("\n\n" + llama_flags.table())


def test_no_flag_is_in_the_table_twice() -> None:
    names = [*NAMES, *(name for row in llama_flags.ELSE for name in row.names)]
    assert sorted(names) == sorted(set(names))


def test_no_pointer_is_for_a_flag_that_run_has() -> None:
    own = {name for option in RUN.params for name in option.opts}
    assert own & set(llama_flags.POINTERS) == set()


@pytest.mark.parametrize("row", llama_flags.SAME[:-1], ids=lambda row: row.names[0])
def test_what_means_the_same_is_understood(row: llama_flags.Same) -> None:
    flags = {name for one in RUN.params if getattr(one, "is_flag", False) for name in one.opts}
    value = (
        [] if row.ours in flags | {"--no-escape"} else ["host:3" if row.ours == "--rpc" else "3"]
    )
    for name in row.names:
        assert parsed(name, *value) == parsed(row.ours, *value)


def test_help_is_called_as_there() -> None:
    assert llama_flags.SAME[-1].names == ("-h", "--help")
    context = RUN.make_context("run", [], parent=ROOT.make_context("spec-cpu", ["run"]))
    assert {"-h", "--help"} == set(context.help_option_names)


@pytest.mark.parametrize("word", ["run", "chat", "bench", "plan"])
def test_what_there_is_not_gets_a_pointer(word: str) -> None:
    command = ROOT.commands[word]
    own = {name for option in command.params for name in option.opts}
    for name in set(llama_flags.POINTERS) - own:
        for value in ("-1", "on"):
            with pytest.raises(UsageError) as refused:
                command.make_context(word, [name, value], parent=ROOT.context_class(ROOT))
            assert str(refused.value) == llama_flags.pointer(name)


def test_a_pointer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "run", "-ngl", "99", "-p", "why?") == 2
    line = "spec-cpu: llama.cpp's -ngl does nothing here: models run on the processor alone\n"
    assert capsys.readouterr() == ("", line)


def test_a_value_that_looks_like_a_flag_is_a_value() -> None:
    assert parsed("-p", "--mlock")["text"] == "--mlock"
    assert parsed("--", "-ngl")["prompt"] == "-ngl"
    assert parsed("--reverse-prompt", "-fa")["stop"] == ["-fa"]


def test_until_the_end() -> None:
    assert parsed("-n", "-1")["max_tokens"] > 10**9


def test_a_bias_as_llama_cpp_writes_it() -> None:
    from spec_cpu_cli.options import SamplingOptions

    for text, bias in (("15=-1", -1.0), ("15-1", -1.0), ("15+2.5", 2.5), ("15=2", 2.0)):
        assert SamplingOptions(logit_bias=[text]).params.logit_bias == {15: bias}
