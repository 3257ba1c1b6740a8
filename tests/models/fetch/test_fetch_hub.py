"""The hub, its client replaced by functions that raise the client's own errors."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fetching import CONTENT, SHA256, Reports, assert_matches, model
from huggingface_hub import errors as hub_errors

from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import HubSource
from spec_cpu.models.fetch import fetch, local_path


def hub_error(kind: type[Exception], status: int = 404) -> Exception:
    if issubclass(kind, hub_errors.HfHubHTTPError):
        response: Any = SimpleNamespace(headers={}, request=None, status_code=status)
        return kind("what the hub says\nand more", response=response)
    return kind("what the hub says\nand more")


class TestHub:
    PARTS = HubSource("owner/name", "m-00001-of-00002.gguf")

    @pytest.fixture(autouse=True)
    def reachable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda *_, **__: None)

    @pytest.fixture
    def hub(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A client that finds every file; the list of what it was asked for."""
        asked: list[str] = []

        def download(
            repo: str, file: str, *, revision: str | None, tqdm_class: Callable[..., Any]
        ) -> str:
            asked.append(file)
            with tqdm_class(total=10, desc=file, unit="B", unit_scale=True) as bar:
                bar.update(4)
                bar.update(6)
            return str(self.store(home, repo, file, revision or "main"))

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        return asked

    @staticmethod
    def store(home: Path, repo: str, file: str, revision: str) -> Path:
        """Put a file into the hub's cache as its client does."""
        folder = home / "hub" / f"models--{repo.replace('/', '--')}"
        link, blob = folder / "snapshots" / "abc" / file, folder / "blobs" / file
        for path in (link, blob, folder / "refs" / revision):
            path.parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / revision).write_text("abc")
        blob.write_bytes(CONTENT)
        link.symlink_to(blob)
        return link

    def fail(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> CatalogError:
        """The error that becomes of `error`."""

        def download(*_: object, **__: object) -> str:
            raise error

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        with pytest.raises(CatalogError) as caught:
            fetch(model(HubSource("owner/name", "m.gguf", "v9")))
        assert "\n" not in str(caught.value)
        return caught.value

    def test_one_file(self, hub: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        wanted, reports = model(HubSource("owner/name", "m.gguf", "v1"), sha256=SHA256), Reports()
        assert local_path(wanted) is None
        path = fetch(wanted, reports)
        assert path.read_bytes() == CONTENT
        assert fetch(wanted) == local_path(wanted) == path
        assert hub == ["m.gguf"]
        assert reports.of("downloading m.gguf") == [(0, None), (4, 10), (10, 10)]
        assert capsys.readouterr() == ("", "")

    def test_all_parts(self, hub: list[str]) -> None:
        path = fetch(model(self.PARTS))
        assert path.name == "m-00001-of-00002.gguf"
        assert hub == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
        assert local_path(model(self.PARTS)) == path

    def test_a_part_is_not_enough(self, home: Path, hub: list[str]) -> None:
        self.store(home, "owner/name", "m-00001-of-00002.gguf", "main")
        assert local_path(model(self.PARTS)) is None
        assert hub == []

    def test_older_clients(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def download(repo: str, file: str, *, revision: str | None) -> str:
            return str(self.store(home, repo, file, revision or "main"))

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        assert fetch(model(HubSource("owner/name", "m.gguf"))).read_bytes() == CONTENT

    @pytest.mark.usefixtures("hub")
    def test_wrong_checksum(self, home: Path) -> None:
        wanted = model(HubSource("owner/name", "m.gguf"), sha256="0" * 64)
        with pytest.raises(CatalogError, match=f"begins with {SHA256[:12]}, not 000000000000"):
            fetch(wanted)
        assert local_path(wanted) is None
        assert not [file for file in (home / "hub").rglob("m.gguf") if file.is_symlink()]
        assert not list((home / "hub").rglob("blobs/*"))

    @pytest.mark.parametrize(
        ("kind", "complaint"),
        [
            (hub_errors.RepositoryNotFoundError, "no repository owner/name, or it is private"),
            (hub_errors.GatedRepoError, "accept the licence on its page.*HF_TOKEN"),
            (hub_errors.DisabledRepoError, "has disabled owner/name"),
            (hub_errors.RevisionNotFoundError, "owner/name has no revision v9"),
            (hub_errors.RemoteEntryNotFoundError, "owner/name has no file m.gguf at v9"),
            (
                hub_errors.LocalEntryNotFoundError,
                "cannot reach the hub to fetch m.gguf .*HF_ENDPOINT.*Models from pip",
            ),
            (hub_errors.OfflineModeIsEnabled, "cannot reach the hub to fetch m.gguf"),
            (hub_errors.HFValidationError, "owner/name cannot be the name of a repository"),
            (hub_errors.HfHubHTTPError, "cannot fetch m.gguf .*what the hub says. Check"),
            (hub_errors.FileMetadataError, "cannot fetch m.gguf"),
            (ConnectionResetError, "cannot reach the hub to fetch m.gguf"),
        ],
    )
    def test_errors(
        self, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], complaint: str
    ) -> None:
        error = self.fail(monkeypatch, hub_error(kind))
        assert_matches(error, complaint)

    @pytest.mark.parametrize("status", [401, 403])
    def test_not_allowed(self, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
        error = self.fail(monkeypatch, hub_error(hub_errors.HfHubHTTPError, status))
        assert_matches(error, f"refuses owner/name \\({status}\\): run hf auth login")

    def test_unreachable_says_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        error = hub_error(hub_errors.LocalEntryNotFoundError)
        error.__cause__ = OSError("Name or service not known")
        assert_matches(
            self.fail(monkeypatch, error), "Name or service not known. Check the network"
        )

    def test_offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        error = self.fail(monkeypatch, hub_error(hub_errors.LocalEntryNotFoundError))
        assert_matches(error, "HF_HUB_OFFLINE forbids to fetch it")

    def test_full_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert_matches(self.fail(monkeypatch, full), "no space left in .*hub")

    def test_bugs_stay_bugs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def download(*_: object, **__: object) -> str:
            raise TypeError("a bug")

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        with pytest.raises(TypeError, match="a bug"):
            fetch(model(HubSource("owner/name", "m.gguf")))

    @pytest.mark.usefixtures("hub")
    def test_the_clients_log_level_is_restored(self) -> None:
        before = logging.getLogger("huggingface_hub").level
        fetch(model(HubSource("owner/name", "m.gguf")))
        assert logging.getLogger("huggingface_hub").level == before


class TestAnUnreachableHub:
    """With the hub's own client: it is asked once, and what is wrong is one line."""

    @pytest.fixture
    def listener(self) -> Iterator[socket.socket]:
        """A port that nobody answers at: the system takes connections, and that is all."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener

    def told(self, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> str:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        # Retries would wait between: there must be none.
        monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waits for {seconds} s"))
        with pytest.raises(CatalogError) as caught:
            fetch(model(HubSource("owner/name", "m.gguf")))
        assert_matches(
            caught.value, f"cannot reach the hub to fetch m.gguf of owner/name from {endpoint}"
        )
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_nobody_listens(self, monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        listener.close()
        assert "refused" in self.told(monkeypatch, f"http://127.0.0.1:{port}").lower()

    def test_no_such_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lookup(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr("socket.getaddrinfo", lookup)
        assert "not known" in self.told(monkeypatch, "http://hub.invalid")

    def test_a_hub_that_never_answers(
        self, monkeypatch: pytest.MonkeyPatch, listener: socket.socket
    ) -> None:
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "0.2")
        port = listener.getsockname()[1]
        line = self.told(monkeypatch, f"http://127.0.0.1:{port}")
        assert "no answer within 0.2 seconds" in line or "timed out" in line  # its client's own

    def test_a_hub_that_hangs_up(
        self, monkeypatch: pytest.MonkeyPatch, listener: socket.socket
    ) -> None:
        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        self.told(monkeypatch, f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()

    def test_a_nonsensical_timeout_is_not_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "soon")
        with pytest.raises(CatalogError, match="HF_HUB_ETAG_TIMEOUT"):
            fetch(model(HubSource("owner/name", "m.gguf")))
