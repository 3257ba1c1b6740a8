"""What the package says of itself is true, and what it needs comes along."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import spec_cpu
from spec_cpu.bench.arms import SHIPPED, read_prompts

ROOT = Path(__file__).parents[1]
MESSAGES = [*(ROOT / "spec_cpu").rglob("*.py"), *(ROOT / "cli").rglob("*.py"), *ROOT.glob("*.md")]


def project() -> dict[str, Any]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_the_licence_is_named_and_there() -> None:
    said = project()
    assert said["license"] == "Apache-2.0"
    (name,) = said["license-files"]
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_what_is_to_be_installed_is_named_by_folder() -> None:
    """The name is on no index: an extra is installed from the folder of the source."""
    extras = set(project()["optional-dependencies"])
    named = []
    for file in MESSAGES:
        text = file.read_text(encoding="utf-8")
        assert "spec-cpu[" not in text, file
        named += re.findall(r'pip install "\.\[(\w+)\]"', text)
    assert {"train", "plot"} <= set(named) <= extras


def test_the_prompts_of_the_benchmark_are_in_the_package() -> None:
    assert SHIPPED.is_relative_to(Path(spec_cpu.__file__).parent)
    assert read_prompts(SHIPPED)
