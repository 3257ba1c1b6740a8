"""`spec-cpu models suggest`: what fits here, and the command for it."""

from __future__ import annotations

import json
import shlex

import pytest
from program import run_program

from spec_cpu.machine.memory_speed import MemorySpeed
from spec_cpu.models.catalog import load_catalog


def memory_gives(monkeypatch: pytest.MonkeyPatch, rate: float, disturbed: str | None) -> None:
    found = MemorySpeed(rate, disturbed)
    monkeypatch.setattr("spec_cpu.machine.memory_speed.memory_speed", lambda: found)


@pytest.fixture(autouse=True)
def memory_gives_30_gb_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_gives(monkeypatch, 3e10, None)


def suggested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
) -> str:
    assert run_program(monkeypatch, "models", "suggest", *args) == 0
    return capsys.readouterr().out


def test_the_command_that_is_given_is_for_a_pair_that_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for memory in ("3.5", "8", "24"):
        last = suggested(monkeypatch, capsys, "--memory", memory).splitlines()[-1]
        pair = shlex.split(last)[3]
        assert last.startswith("spec-cpu run --pair ")
        found = json.loads(suggested(monkeypatch, capsys, "--memory", memory, "--json"))
        assert found[0]["pair"] == pair
        assert found[0]["memory_bytes"] <= float(memory) * 1e9
        assert pair in load_catalog().pairs


def test_where_nothing_fits_there_is_a_way_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = suggested(monkeypatch, capsys, "--memory", "0.5")
    assert "No pair of the catalogue fits" in shown
    assert "--pair" not in shown


def test_nonsense_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "models", "suggest", "--memory", "-1") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_busy_machine_is_said_beside_the_answer_and_a_quiet_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert run_program(monkeypatch, "models", "suggest", "--memory", "8", *flags) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    memory_gives(monkeypatch, 3e10, "other programs used 1.5 of 2 processors")
    assert run_program(monkeypatch, "models", "suggest", "--memory", "8", *flags) == 0
    busy = capsys.readouterr()
    assert busy.out == quiet.out
    assert "busy" in busy.err
    assert "1.5 of 2 processors" in busy.err
