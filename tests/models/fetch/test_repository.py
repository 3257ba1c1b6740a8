"""Any repository of the hub: which file is chosen, and a hub on this machine that has some."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import run_program

from spec_cpu.errors import CatalogError, UsageError
from spec_cpu.models.fetch import repository, resolve

REPO = "Owner/Name-GGUF"
COMMIT = "c" * 40
FILES = [
    ".gitattributes",
    "README.md",
    "Name-BF16-00001-of-00002.gguf",
    "Name-BF16-00002-of-00002.gguf",
    "Name-Q4_K_M.gguf",
    "Name-Q8_0.gguf",
    "mmproj-Name-Q4_K_M.gguf",
]


@pytest.mark.parametrize(
    ("files", "quant", "chosen"),
    [
        (FILES, None, "Name-Q4_K_M.gguf"),
        (FILES, "q8_0", "Name-Q8_0.gguf"),
        (FILES, "BF16", "Name-BF16-00001-of-00002.gguf"),
        (FILES, "Q5_K_M", None),
        (["m-Q8_0.gguf", "m-F16.gguf"], None, "m-Q8_0.gguf"),
        (["m-F16.gguf", "m-Q5_0.gguf"], None, "m-F16.gguf"),
        (["mmproj-Q4_K_M.gguf", "m-F16.gguf"], None, "m-F16.gguf"),
        (["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"], None, "m-00001-of-00002.gguf"),
        (["Q4_K_M/m-Q4_K_M-00001-of-00001.gguf"], None, "Q4_K_M/m-Q4_K_M-00001-of-00001.gguf"),
        (["m.Q4_K_M.gguf"], None, "m.Q4_K_M.gguf"),
        (["m-Q4_K_M.safetensors", "imatrix.gguf"], None, None),
        ([], None, None),
    ],
)
def test_files_are_chosen_as_llama_cpp_does(
    files: list[str], quant: str | None, chosen: str | None
) -> None:
    assert repository.choose(files, quant) == chosen


@given(st.lists(st.sampled_from(FILES), unique=True), st.sampled_from([None, "Q8_0", "BF16"]))
def test_what_is_chosen_is_a_model_of_the_list(files: list[str], quant: str | None) -> None:
    chosen = repository.choose(files, quant)
    if chosen is not None:
        assert chosen in files
        assert chosen.endswith(".gguf")
        assert "mmproj" not in chosen
        assert "00002-of" not in chosen
        assert quant is None or quant in chosen


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("Qwen/Qwen3-8B-GGUF", True),
        ("Qwen/Qwen3-8B-GGUF:Q8_0", True),
        ("a/b.gguf", False),
        ("./a/b", False),
        ("../a", False),
        ("~/a", False),
        ("/a/b", False),
        ("a/b/c", False),
        ("a", False),
        ("a/", False),
        ("a/b:", False),
        ("a/b:c:d", False),
    ],
)
def test_what_names_a_repository(text: str, is_name: bool) -> None:
    assert repository.is_name(text) is is_name


def test_a_folder_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert not repository.is_name("models/absent")
    assert resolve("models/absent") == Path("models/absent")


@dataclass
class Hub:
    """A hub of one repository."""

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append(path)
        if path == f"/api/models/{REPO}":
            siblings = [{"rfilename": name} for name in sorted(self.files)]
            self.send(
                request, json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode()
            )
            return
        prefix = f"/{REPO}/resolve/main/"
        content = self.files.get(path.removeprefix(prefix)) if path.startswith(prefix) else None
        if content is None:
            request.send_response(404)
            known = path.startswith(f"/{REPO}/")
            request.send_header("X-Error-Code", "EntryNotFound" if known else "RepoNotFound")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        self.send(request, content)

    def send(self, request: BaseHTTPRequestHandler, content: bytes) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        request.send_header("X-Repo-Commit", COMMIT)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub({name: name.encode() * 10 for name in FILES})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(self)

        do_HEAD = do_GET  # noqa: N815 (the server asks for this name)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        reach(monkeypatch, f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield hub
        server.shutdown()
        thread.join()


def reach(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Make the hub's client believe that the hub is there: it read the variable when imported."""
    import huggingface_hub
    from huggingface_hub import HfApi

    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        endpoint + "/{repo_id}/resolve/{revision}/{filename}",
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "model_info", HfApi(endpoint=endpoint).model_info)


def test_it_is_fetched_once_and_found_without_the_hub(hub: Hub) -> None:
    path = resolve(REPO)
    assert path.read_bytes() == b"Name-Q4_K_M.gguf" * 10
    hub.asked.clear()
    assert resolve(REPO) == resolve(f"{REPO}:q4_k_m") == path
    assert hub.asked == []


def test_all_parts_are_fetched(hub: Hub) -> None:
    path = resolve(f"{REPO}:BF16")
    assert path.name == "Name-BF16-00001-of-00002.gguf"
    assert path.with_name("Name-BF16-00002-of-00002.gguf").is_file()
    assert [one.name for one in repository.downloaded()] == [f"{REPO}:BF16"]


def test_another_quantization_that_is_here_is_not_taken_for_the_usual_one(hub: Hub) -> None:
    resolve(f"{REPO}:Q8_0")
    assert resolve(REPO).name == "Name-Q4_K_M.gguf"


def test_without_the_hub_what_is_here_will_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(f"{REPO}:Q8_0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert resolve(REPO).name == "Name-Q8_0.gguf"


@pytest.mark.parametrize(
    ("name", "files", "problem"),
    [
        (f"{REPO}:Q5_K_M", FILES, f"{REPO} has no file for Q5_K_M; it has BF16, Q4_K_M, Q8_0"),
        (REPO, ["README.md", "mmproj.gguf"], f"{REPO} has no GGUF of a language model"),
        ("Owner/Other", FILES, "the hub has no repository Owner/Other, or it is private"),
    ],
)
def test_what_there_is_not_is_one_line(hub: Hub, name: str, files: list[str], problem: str) -> None:
    hub.files = dict.fromkeys(files, b"x")
    with pytest.raises(CatalogError) as refused:
        resolve(name)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reach(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(
        CatalogError, match=f"cannot reach the hub to fetch the list of files of {REPO}"
    ) as refused:
        resolve(REPO)
    assert "\n" not in str(refused.value)


def test_a_name_without_an_owner_is_one_of_the_catalogue() -> None:
    with pytest.raises(UsageError, match="no model named"):
        resolve("Name-GGUF")


class TestCommands:
    def run(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
    ) -> str:
        assert run_program(monkeypatch, *args) == 0
        return capsys.readouterr().out

    def test_pull_list_and_path(
        self, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "from the hub" not in self.run(monkeypatch, capsys, "models", "list")
        pulled = self.run(monkeypatch, capsys, "models", "pull", f"{REPO}:BF16")
        path = pulled.split()[-1]
        assert self.run(monkeypatch, capsys, "models", "path", f"{REPO}:BF16") == f"{path}\n"
        listed = self.run(monkeypatch, capsys, "models", "list")
        assert f"{REPO}:BF16" in listed
        found = json.loads(self.run(monkeypatch, capsys, "models", "list", "--json"))
        assert [one["path"] for one in found["hub"]] == [path]
        shown = self.run(monkeypatch, capsys, "models", "show", f"{REPO}:BF16")
        assert path in shown
        assert "removed" in self.run(monkeypatch, capsys, "models", "rm", f"{REPO}:BF16")
        assert not list(Path(path).parent.iterdir())

    def test_path_of_what_is_not_here(
        self, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for command in ("path", "show", "rm"):
            assert run_program(monkeypatch, "models", command, REPO) == 1
            assert f"spec-cpu models pull {REPO}" in capsys.readouterr().err
        assert hub.asked == []
