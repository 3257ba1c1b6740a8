"""Bad names of models, broken catalogues, caches that cannot be used."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import DEADLINE, PROGRAM, Call, refused, spawn


def own_catalogue(text: str | bytes) -> Path:
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "spec-cpu" / "models.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def model_entry(name: str, source: str) -> str:
    return (
        f'[models.{name}]\nfamily = "F"\nparameters = "1"\nquantization = "F32"\n'
        f'license = "MIT"\nsource = {{ {source} }}\n'
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-m", "nothing-like-it"], ("nothing-like-it", "models list")),
        (["-m", "smollm2-135m-instrukt"], ("smollm2-135m-instruct", "mean")),
        (["-m", "smollm2-135m"], ("is a pair", "--pair smollm2-135m")),
        (["-m", ""], ("the name of the model is empty",)),
        (["--pair", "qwen3-8"], ("qwen3-8b", "mean")),
        (["--pair", ""], ("the name of the pair is empty",)),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    call: Call, args: list[str], words: tuple[str, ...]
) -> None:
    refused(call("run", "hi", *args), 2, *words)


@pytest.mark.parametrize("draft", ["", "NONE", "nothing"])
def test_an_unknown_draft_is_refused(call: Call, plain: list[str], draft: str) -> None:
    refused(call("run", "hi", "-q", *plain, "-d", draft), 2)


@pytest.mark.parametrize("command", ["show", "pull", "path"])
def test_an_unknown_name_for_models(call: Call, command: str) -> None:
    refused(call("models", command, "gemma-3-4b-instruct"), 2, "gemma-3-4b-it", "models list")


def test_what_looks_like_a_path_is_one(call: Call, tiny_target: Path) -> None:
    """Rule: `./name` is a file, even where the catalogue has a model called `name`."""
    refused(call("run", "hi", "-m", "./nothing"), 2, "no such file", "nothing")
    own_catalogue(model_entry("mine", f'kind = "file", path = "{tiny_target}"'))
    refused(call("run", "hi", "-m", "./mine"), 2, "no such file", "mine")


@pytest.mark.parametrize(
    "text",
    [
        "[models",
        "models = 1",
        "[nonsense]",
        "[models.x]",
        '[models."a/b"]',
        "[pairs.x]\ntarget = 'a'\ndraft = 'b'",
        model_entry("x", 'kind = "nonsense"'),
        model_entry("x", 'kind = "quantize", of = "x", type = "Q4_0"'),
        b"[models.x]\nfamily = '\xff'",
        "\0",
        "a = " + "[" * 5000,
    ],
    ids=lambda text: repr(text[:20]),
)
@pytest.mark.parametrize("args", [["run", "hi"], ["models", "list"], ["models", "path", "x"]])
def test_a_broken_catalogue_of_ones_own_is_named(
    call: Call, text: str | bytes, args: list[str]
) -> None:
    file = own_catalogue(text)
    refused(call(*args), 1, str(file))


def test_a_broken_catalogue_does_not_matter_to_files(call: Call, pair: list[str]) -> None:
    own_catalogue("[models")
    assert call("run", "hi", "-q", *pair).code == 0


@pytest.fixture
def fetchable(tiny_target: Path) -> str:
    """The name of a model that has to be fetched."""
    own_catalogue(model_entry("mine", f'kind = "url", url = "{tiny_target.as_uri()}"'))
    return "mine"


def test_a_source_that_is_gone_is_said(call: Call) -> None:
    own_catalogue(
        model_entry("file", 'kind = "file", path = "/nothing/x.gguf"')
        + model_entry("url", 'kind = "url", url = "file:///nothing/x.gguf"')
    )
    for name in ("file", "url"):
        refused(call("run", "hi", "-m", name), 1, "/nothing/x.gguf", name)


def test_a_cache_that_is_a_file(
    call: Call, fetchable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    monkeypatch.setenv("SPEC_CPU_CACHE", "file")
    refused(call("run", "hi", "-m", fetchable), 1, "file", "SPEC_CPU_CACHE")


def test_a_cache_of_a_user_who_does_not_exist(
    call: Call, fetchable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", "~nobody-by-this-name/cache")
    outcome = call("run", "hi", "-m", fetchable)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "nobody-by-this-name")


@pytest.mark.parametrize("folder", ["/proc", "/proc/nothing"])
def test_a_cache_that_cannot_be_written(fetchable: str, folder: str) -> None:
    outcome = spawn("run", "hi", "-m", fetchable, env={"SPEC_CPU_CACHE": folder})
    refused(outcome, 1, folder, "SPEC_CPU_CACHE")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB: half of a tiny model."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_cache(
    call: Call, fetchable: str, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_CPU_CACHE", str(small_disk))
    refused(call("run", "hi", "-m", fetchable), 1, "no space", str(small_disk), "SPEC_CPU_CACHE")
    monkeypatch.setenv("SPEC_CPU_CACHE", str(small_disk.parent / "cache"))
    assert call("models", "pull", fetchable).code == 0


def test_two_may_fetch_at_once(fetchable: str) -> None:
    command = [*PROGRAM, "models", "pull", fetchable]
    both = [subprocess.Popen(command, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    ends = [process.communicate(timeout=DEADLINE) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert ends[0] == ends[1]
    path = Path(ends[0][0].split()[-1])
    assert path.is_file()
    assert [file.name for file in path.parent.glob("[!.]*")] == [path.name]
