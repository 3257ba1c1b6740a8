"""`spec-cpu cache`, `spec-cpu models rm`: what is kept is shown, and removed where it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program import run_program
from spec_cpu_cli.cache import NAMES

from spec_cpu.cache import locked
from spec_cpu.models.catalog import load_catalog, user_file
from spec_cpu.models.fetch.store import cache_path

KEPT = {
    "models": ("smollm2-135m-instruct", 3000),
    "quantized": ("smollm2-135m-instruct-q4_0", 2000),
    "kernels": ("kernels/abc/lib.so", 500),
    "costs": ("costs/abc.json", 40),
    "memory": ("memory/abc.memory", 300),
    "notices": ("notices/abc", 0),
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with something of everything."""
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "cache"
    for name, size in KEPT.values():
        file = folder / name if "/" in name else cache_path(load_catalog().model(name))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(size))
    (folder / "records").mkdir()
    (folder / "records" / "abc.json").write_bytes(bytes(2))
    return folder


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_program(monkeypatch, "cache", "show", "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def sizes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    parts = shown(monkeypatch, capsys)["parts"]
    return {name: part["bytes"] for name, part in parts.items()}


def test_all_is_shown_with_its_size(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(monkeypatch, capsys)
    assert found["folder"] == str(kept)
    assert tuple(found["parts"]) == NAMES
    expected = {name: size for name, (_, size) in KEPT.items()} | {"costs": 42}
    assert {name: part["bytes"] for name, part in found["parts"].items()} == expected
    assert run_program(monkeypatch, "cache", "show") == 0
    out = capsys.readouterr().out
    for words in (str(kept), "SPEC_CPU_CACHE", "made here", "hub", *NAMES):
        assert words in out


@pytest.mark.parametrize("name", NAMES)
def test_a_part_is_cleared_and_no_other(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    before = shown(monkeypatch, capsys)["parts"]
    assert run_program(monkeypatch, "cache", "clear", name, "--yes") == 0
    assert f"removed {name}" in capsys.readouterr().out
    after = shown(monkeypatch, capsys)["parts"]
    assert after[name]["paths"] == []
    assert not any(Path(path).exists() for path in before[name]["paths"])
    assert {k: part for k, part in after.items() if k != name} == {
        k: part for k, part in before.items() if k != name
    }


def test_clearing_all_leaves_what_is_not_ours(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [kept / "mine.gguf", kept / "notes" / "a.txt"]
    own[1].parent.mkdir()
    for file in own:
        file.write_text("x")
    assert run_program(monkeypatch, "cache", "clear", "-y") == 0
    capsys.readouterr()
    assert set(sizes(monkeypatch, capsys).values()) == {0}
    assert all(file.exists() for file in own)
    assert run_program(monkeypatch, "cache", "clear") == 0
    assert capsys.readouterr().out == "nothing is kept\n"


@pytest.mark.usefixtures("kept")
def test_it_asks_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = sizes(monkeypatch, capsys)
    assert run_program(monkeypatch, "cache", "clear") == 2
    assert "give --yes" in capsys.readouterr().err
    monkeypatch.setattr("spec_cpu_cli.removal._can_be_asked", lambda: True)
    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr("typer.confirm", lambda *_, answer=answer, **__: answer)
        assert run_program(monkeypatch, "cache", "clear", "costs", "kernels") == code
        capsys.readouterr()
        cleared = {name: 0 for name in ("costs", "kernels") if answer}
        assert sizes(monkeypatch, capsys) == before | cleared


@pytest.mark.usefixtures("kept")
def test_an_unknown_part_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(monkeypatch, "cache", "clear", "modles", "--yes") == 2
    assert "nothing called 'modles' is kept: there are models, quantized" in capsys.readouterr().err


def test_an_unfinished_download_counts_and_goes(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cache_path(load_catalog().model("smollm2-135m-instruct"))
    file.rename(file.with_name(f"{file.name}.part"))
    file.with_name(f"{file.name}.part.tag").write_text("1")
    (kept / f".{file.name}.staging").mkdir()
    (kept / f".{file.name}.staging" / "half").write_bytes(bytes(10))
    assert sizes(monkeypatch, capsys)["models"] == 3000 + 1 + 10
    assert run_program(monkeypatch, "cache", "clear", "models", "--yes") == 0
    capsys.readouterr()
    assert sizes(monkeypatch, capsys)["models"] == 0


@pytest.mark.usefixtures("kept")
def test_what_is_being_fetched_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = cache_path(load_catalog().model("smollm2-135m-instruct"))
    for command in (["cache", "clear", "models", "--yes"], ["models", "rm", file.stem[:-9]]):
        with locked(file, "test", lambda *_: None):
            assert run_program(monkeypatch, *command) == 1
        assert "another process is fetching" in capsys.readouterr().err
        assert file.exists()


@pytest.mark.usefixtures("kept")
def test_a_model_is_removed_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("models", "quantized"):
        name, _ = KEPT[part]
        assert run_program(monkeypatch, "models", "rm", name) == 0
        assert capsys.readouterr().out == f"removed {name}\n"
        assert run_program(monkeypatch, "models", "rm", name) == 2
        assert f"{name} is not here" in capsys.readouterr().err
    found = sizes(monkeypatch, capsys)
    assert (found["models"], found["quantized"], found["kernels"]) == (0, 0, 500)


def test_what_spec_cpu_did_not_fetch_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own = tmp_path / "own.gguf"
    own.touch()
    user_file().parent.mkdir(parents=True)
    user_file().write_text(
        '[models.own]\nfamily = "F"\nparameters = "1M"\nquantization = "F32"\nlicense = "MIT"\n'
        f'source = {{ kind = "file", path = "{own}" }}\n'
    )
    for name in ("own", "smollm2-135m-eagle"):
        assert run_program(monkeypatch, "models", "rm", name) == 2
        assert "which spec-cpu did not fetch" in capsys.readouterr().err
    assert own.exists()


@pytest.mark.usefixtures("kept")
def test_a_model_of_the_hub_is_removed_with_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "hub" / "models--owner--name"
    contents = {"m-Q4_K_M.gguf": "one", "m-Q8_0.gguf": "two"}
    for revision in ("abc", "def"):
        for name, blob in contents.items():
            link = folder / "snapshots" / revision / name
            link.parent.mkdir(parents=True, exist_ok=True)
            (folder / "blobs").mkdir(exist_ok=True)
            (folder / "blobs" / blob).write_bytes(b"x")
            link.symlink_to(f"../../blobs/{blob}")
    (folder / "refs").mkdir()

    def remove(revision: str) -> int:
        (folder / "refs" / "main").write_text(revision)
        return run_program(monkeypatch, "models", "rm", "owner/name:Q4_K_M")

    assert remove("abc") == 0
    assert capsys.readouterr().out == "removed owner/name:Q4_K_M\n"
    assert (folder / "blobs" / "one").exists()  # another revision has it
    assert (folder / "snapshots" / "def" / "m-Q4_K_M.gguf").exists()
    assert remove("def") == 0
    assert not (folder / "blobs" / "one").exists()
    assert (folder / "blobs" / "two").exists()
    capsys.readouterr()
    assert remove("def") == 1
    assert "owner/name:Q4_K_M is not here" in capsys.readouterr().err
    own = tmp_path / "own.gguf"
    own.touch()
    (folder / "snapshots" / "def" / "m-Q4_K_M.gguf").symlink_to(own)
    assert remove("def") == 0
    assert own.exists()  # a link to somebody's own file is all that goes
