"""`--recalibrate`: what passes cost is measured anew, whatever the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import run_program

from spec_cpu.errors import UsageError


@pytest.mark.parametrize("recalibrate", [False, True])
@pytest.mark.parametrize("command", ["run", "chat", "bench", "plan"])
def test_every_command_passes_it_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, recalibrate: bool
) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}')
    (tmp_path / "m.gguf").touch()
    asked: dict[str, object] = {}

    def load(*_: object, **options: object) -> None:
        asked.update(options)
        raise UsageError("that is enough")

    monkeypatch.setattr("spec_cpu.loading.load", load)
    monkeypatch.chdir(tmp_path)
    own = {"run": ["hello"], "bench": ["--prompts", "p.jsonl"]}.get(command, [])
    flag = ["--recalibrate"] if recalibrate else []
    models = ["-m", "m.gguf", "-d", "m.gguf"]
    assert run_program(monkeypatch, command, *own, *models, *flag) == 2
    assert asked["recalibrate"] is recalibrate
