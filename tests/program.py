"""The program, in the process of the tests."""

from __future__ import annotations

import pytest
from spec_cpu_cli.main import main


def run_program(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    """Run `spec-cpu ARGS`; return its exit code. An error that is not foreseen is raised."""
    monkeypatch.setattr("sys.argv", ["spec-cpu", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code
