"""What shells complete: asked as each of them asks, and in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spec_cpu_cli import completion
from spec_cpu_cli.app import app

from spec_cpu.models.catalog import load_catalog, user_file

if TYPE_CHECKING:
    from conftest import Program

PROGRAM = Path(sysconfig.get_path("scripts")) / "spec-cpu"
SHELLS = ("bash", "zsh", "fish")


def asked(program: Program, shell: str, line: str) -> dict[str, str]:
    """The environment in which `shell` asks how to go on with `line`."""
    words = line.split(" ")
    return {
        **program.env,
        "_SPEC_CPU_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }


def offered(program: Program, shell: str, line: str) -> str:
    env = asked(program, shell, line)
    done = subprocess.run(
        [PROGRAM], env=env, cwd=program.home, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("spec-cpu mod", "models"),
        ("spec-cpu run --tar", "--target"),
        ("spec-cpu run --target qwen3-8", "qwen3-8b"),
        ("spec-cpu chat --pair llama", "llama-3.1-8b"),
        ("spec-cpu run -m x.gguf --draft ngram,qwen3-0", "ngram,qwen3-0.6b"),
        ("spec-cpu models pull gemma-3-2", "gemma-3-270m-it"),
        ("spec-cpu cache clear mem", "memory"),
    ],
)
def test_a_shell_is_told_what_to_offer(program: Program, shell: str, line: str, word: str) -> None:
    assert word in offered(program, shell, line)


def test_completing_loads_no_more_than_help(program: Program) -> None:
    code = (
        "import sys\n"
        "from spec_cpu_cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    print('CODE', end.code)\n"
        "print('LOADED', [m for m in ('llama_cpp', 'numpy', 'rich.live') if m in sys.modules])\n"
    )
    env = asked(program, "bash", "spec-cpu run --target qwen")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["CODE 0", "LOADED []"]


# What is offered


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def words(offers: list[tuple[str, str]]) -> set[str]:
    return {word for word, _ in offers}


def test_every_name_of_the_catalogue_is_offered_from_its_first_letter_on() -> None:
    catalog = load_catalog()
    for name in catalog.models:
        for end in range(len(name) + 1):
            for offers in (completion.targets, completion.drafts, completion.models_and_pairs):
                assert name in words(offers(name[:end]))
    for name in catalog.pairs:
        for end in range(len(name) + 1):
            assert name in words(completion.pairs(name[:end]))
            assert name in words(completion.models_and_pairs(name[:end]))


def test_what_does_not_begin_so_is_not_offered() -> None:
    for offers in (completion.targets, completion.drafts, completion.pairs, completion.models):
        assert {word[0] for word in words(offers("q"))} == {"q"}


def test_files_here_are_offered_beside_names(here: Path) -> None:
    for name in ("qwen-mine.gguf", "other.gguf", "qwen.txt"):
        (here / name).touch()
    assert {"qwen-mine.gguf", "qwen3-8b"} <= words(completion.targets("qwen"))
    assert not {"other.gguf", "qwen.txt"} & words(completion.targets("qwen"))


@pytest.mark.parametrize("path", ["./", "/", "folder/m", "~/"])
def test_a_path_is_left_to_the_shell(here: Path, path: str) -> None:
    (here / "m.gguf").touch()
    assert completion.targets(path) == completion.drafts(path) == []


def test_drafts_behind_a_comma() -> None:
    assert {"ngram", "none"} <= words(completion.drafts("n"))
    behind = words(completion.drafts("ngram,"))
    assert "ngram,qwen3-0.6b" in behind
    assert not {"ngram,ngram", "ngram,none"} & behind
    assert words(completion.drafts("qwen3-0.6b,")) == {"qwen3-0.6b,ngram"}


def test_a_catalogue_that_cannot_be_read_offers_nothing(here: Path) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("[models")
    assert completion.targets("q") == completion.pairs("") == []


# In the shells


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_for_the_shell_that_it_is_typed_into(
    program: Program, here: Path, shell: str
) -> None:
    bash = shutil.which("bash")
    assert bash
    (here / shell).symlink_to(bash)  # a shell goes by its name
    for option in ("--install-completion", "--show-completion"):
        done = subprocess.run(
            [here / shell, "-c", f"{PROGRAM} {option}; true"],
            env={**program.env, "HOME": str(here)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        if option == "--install-completion":
            assert f"{shell} completion installed" in done.stdout
            written = [file.read_text() for file in here.rglob("*spec-cpu*") if file.is_file()]
            assert any(f"complete_{shell}" in text for text in written)
        else:
            assert f"complete_{shell}" in done.stdout


def test_bash_completes_names_and_files(program: Program, here: Path) -> None:
    (here / "report.txt").touch()
    script = (
        'eval "$(spec-cpu --show-completion bash)"\n'
        "complete -p spec-cpu\n"
        'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
        '_spec_cpu_completion spec-cpu; echo "${COMPREPLY[@]}"; }\n'
        "ask spec-cpu run --target qwen3-8\n"
        "ask spec-cpu run -f rep\n"
    )
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**program.env, "PATH": path},
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    how, name, nothing = done.stdout.splitlines()
    assert "-o default" in how  # where nothing is offered, bash completes files
    assert (name, nothing) == ("qwen3-8b", "")


def test_fish_offers_files_where_nothing_else_is_offered(program: Program) -> None:
    for line, code in (("spec-cpu run --target qwen3", 0), ("spec-cpu run -f rep", 1)):
        env = {**asked(program, "fish", line), "_TYPER_COMPLETE_FISH_ACTION": "is-args"}
        done = subprocess.run([PROGRAM], env=env, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (code, b"")


def test_options_that_name_models_complete_them() -> None:
    """None is forgotten: whatever is called so offers what it takes."""
    import typer

    wanted = {"target", "draft", "pair"}
    group = typer.main.get_command(app)
    found = [
        (command.name, parameter.name)
        for command in group.commands.values()  # type: ignore[attr-defined]
        for parameter in command.params
        if parameter.name in wanted and parameter._custom_shell_complete is None
    ]
    assert found == []
