"""Every command in the README and the documentation does what it says, with tiny models."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
import tiny_head
import typer
from fake_engine import FakeEngine
from live_server import running
from made_up import measured
from pages import PAGES, ROOT, Block, blocks
from program import run_program
from rpc_server import RunningServer
from spec_cpu_cli.app import app

from spec_cpu.llama.model import Model
from spec_cpu.models.catalog import load_catalog
from spec_cpu.serve.http.service import Service
from spec_cpu.serve.http.settings import HttpSettings

HUB = ("Qwen/Qwen3-8B-GGUF",)  # repositories that the pages name
SHELL = list(blocks("sh", "bash", "shell", "console"))
PYTHON = list(blocks("python"))
PARSED = {
    ("train",): "takes minutes at least, and torch",
    ("kernels", "build"): "compiles; tests/kernels does so",
    ("kernels", "test"): "compiles; tests/kernels does so",
}
"""Commands whose options are looked at, and that are not run, and why."""

SETTING = re.compile(r"[A-Z_]+=.*", re.DOTALL)  # of the environment, before a command
SHORT = {
    "run": ["-n", "8"],
    "chat": ["-n", "8"],
    "bench": ["-n", "4", "--limit", "1", "--temp", "0"],
    "plan": ["--max-k", "2"],
    "serve": ["--port", "0", "--slots", "1"],
}
"""What keeps a command from taking long."""


SERVER = "http://127.0.0.1:8080"
"""What is asked there needs a server that runs."""


def with_server(found: list[Block]) -> list[Block]:
    return [block for block in found if SERVER in block.text]


def without_server(found: list[Block]) -> list[Block]:
    return [block for block in found if SERVER not in block.text]


def makes(words: list[str]) -> None:
    """`make TARGET`: sets up an environment of its own."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words[1:]) <= set(targets)


def installs(words: list[str]) -> None:
    """`pip install`: needs a package index, and minutes."""
    from importlib import import_module

    toml = import_module("tomllib" if importlib.util.find_spec("tomllib") else "tomli")
    extras = toml.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[1] == "install"
    if words[-1].startswith("llama-cpp-python"):
        assert words[-1] == f"llama-cpp-python=={version('llama-cpp-python')}"
        return
    if (ROOT / words[-1] / "pyproject.toml").exists():
        return
    named = re.fullmatch(r"\.(?:\[([\w,]+)\])?", words[-1])
    assert named, words
    assert set((named[1] or "").split(",")) - {""} <= set(extras)


def makes_environment(words: list[str]) -> None:
    """`python3 -m venv`: would take seconds, and nothing of ours."""
    assert words[1:] == ["-m", "venv", ".venv"]


def enters_environment(words: list[str]) -> None:
    """`. .venv/bin/activate`: changes the shell that it is typed into."""
    assert words == [".", ".venv/bin/activate"]


def asks_llm(words: list[str]) -> None:
    """`llm`: another program, with a plugin of ours, which has tests of its own."""
    assert words[1] == "-m"
    assert words[2].startswith("spec-cpu/")


EXEMPT: dict[str, Callable[[list[str]], None]] = {
    "make": makes,
    "pip": installs,
    "python3": makes_environment,
    ".": enters_environment,
    "llm": asks_llm,
}
"""Programs that are not run, and how what is typed for them is checked."""


@pytest.fixture
def folder(
    tmp_path: Path,
    tiny_target: Path,
    tiny_draft: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A folder with all the files that the pages name, and a catalogue of tiny models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPEC_CPU_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "big.gguf").symlink_to(tiny_target)
    (tmp_path / "tiny.gguf").symlink_to(tiny_draft)
    tiny_head.write_head(tmp_path / "head.gguf", tiny_target)
    for name in ("report.txt", "draft.md", "api.md", "keys.txt"):
        (tmp_path / name).write_text("A text of a few words.\n")
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "Why?"}\n')
    monkeypatch.setattr("spec_cpu.bench.arms.SHIPPED", prompts)
    monkeypatch.setattr("spec_cpu_cli.demo._MAX_TOKENS", 8)
    monkeypatch.setattr("spec_cpu.costs.measure.measure", measured)
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    monkeypatch.setattr("uvicorn.Server.main_loop", ends_at_once)
    write_on_hub(tmp_path / "hub", monkeypatch, tiny_target)
    settings = tmp_path / "config" / "spec-cpu" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[presets.code]\ntemp = 0\n")
    monkeypatch.delenv("SPEC_CPU_CONFIG")
    catalogue = settings.with_name("models.toml")
    pairs = load_catalog().pairs.values()
    drafts = {pair.draft for pair in pairs}
    catalogue.write_text(
        "\n".join(
            f'[models."{name}"]\nfamily = "f"\nparameters = "1M"\nquantization = "F32"\n'
            f'license = "l"\n[models."{name}".source]\nkind = "url"\n'
            f'url = "{(tiny_draft if name in drafts else tiny_target).as_uri()}"\n'
            for name in load_catalog().models
        )
    )
    return tmp_path


async def ends_at_once(_server: object) -> None:
    """In place of what a server does until it is ended."""


@pytest.fixture
def served(tiny_target: Path) -> Iterator[str]:
    """The address of a server that answers, in place of `SERVER`."""
    with Model(tiny_target) as model:
        engine = FakeEngine(model)
        with running(Service(engine, HttpSettings(name="tiny"))) as url:
            yield url
        engine.close()


def write_on_hub(cache: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    """Make repositories of the hub, and put their files into its cache, where nobody asks it."""
    names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    for repo in HUB:
        folder = cache / f"models--{repo.replace('/', '--')}"
        for name in names:
            file = folder / "snapshots" / "abc" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.symlink_to(model)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("abc")
    monkeypatch.setattr("spec_cpu.models.fetch.repository._listed", lambda _repo: names)


def test_there_is_something_to_run() -> None:
    assert len(PAGES) > 5
    assert sum(len(block.commands) for block in SHELL) > 30
    assert len(PYTHON) > 2


@pytest.mark.parametrize("block", with_server(SHELL), ids=lambda block: block.where)
def test_commands_that_ask_a_server(block: Block, served: str) -> None:
    for words in block.commands:
        assert words[0] == "curl"
        asked = [word.replace(SERVER, served) for word in words]
        done = subprocess.run([*asked, "-sS"], capture_output=True, text=True, check=True)
        assert "error" not in json.loads(done.stdout), done.stdout


@pytest.mark.filterwarnings("ignore")  # what other libraries warn of is their own matter
@pytest.mark.parametrize("block", with_server(PYTHON), ids=lambda block: block.where)
def test_python_that_asks_a_server(
    block: Block, served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(block.text.replace(SERVER, served), block.where, "exec"), {"__name__": "__main__"})
    assert "Hello there" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("block", without_server(SHELL), ids=lambda block: block.where)
def test_commands(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in block.commands:
        settings = dict(word.split("=", 1) for word in takewhile(SETTING.fullmatch, words))
        program, *args = words[len(settings) :]
        if program in EXEMPT:
            EXEMPT[program]([program, *args])
            continue
        assert program == "spec-cpu", f"neither run nor known: {program}"
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            run(args, patch)


def run(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if any(tuple(args[: len(start)]) == start for start in PARSED):
        parse(args)
        return
    if "--rpc" in args:
        run_with_servers(args, monkeypatch)
        return
    monkeypatch.setattr("sys.stdin", io.StringIO("Why is the sky blue?\n"))
    assert run_program(monkeypatch, *args, *SHORT.get(args[0], [])) == 0, args


def run_with_servers(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With servers of this machine in place of those named; without any its options are read."""
    parse(args)
    if not llama_cpp.llama_supports_rpc():
        return
    place = args.index("--rpc") + 1
    with ExitStack() as stack:
        servers = [RunningServer() for _ in args[place].split(",")]
        for server in servers:
            stack.callback(server.kill)
        args[place] = ",".join(str(server.address) for server in servers)
        assert run_program(monkeypatch, *args, *SHORT.get(args[0], [])) == 0, args


def parse(args: list[str]) -> None:
    """Read the options as the program does. A bad one is an error."""
    command: Any = typer.main.get_command(app)
    name, context, rest = "spec-cpu", None, list(args)
    while rest and rest[0] in getattr(command, "commands", {}):
        context = command.context_class(command, info_name=name, parent=context)
        name = rest.pop(0)
        command = command.commands[name]
    command.make_context(name, rest, parent=context)


def test_a_command_that_does_not_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (["train", "--target", "big.gguf", "--out", "h", "--weeks", "2"], ["train"]):
        with pytest.raises(Exception, match=r"(?i)no such option|missing"):
            run(wrong, monkeypatch)
    with pytest.raises(AssertionError):
        run(["run", "--no-such-option", "why?"], monkeypatch)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("block", without_server(PYTHON), ids=lambda block: block.where)
def test_python(block: Block) -> None:
    exec(compile(block.text, block.where, "exec"), {"__name__": "__main__"})
