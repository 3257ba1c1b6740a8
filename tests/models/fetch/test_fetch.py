"""Names and paths, files, quantizing, the cache, the disk, and two at once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fetching import CONTENT, PATIENCE, Reports, Site, add_to_catalog, leftovers, model

from spec_cpu.cache import cache_dir
from spec_cpu.errors import CatalogError, ModelError, UsageError
from spec_cpu.models.catalog import FileSource, QuantizeSource, UrlSource, user_file
from spec_cpu.models.fetch import fetch, local_path, resolve
from spec_cpu.models.fetch.store import cache_path

ROOT = Path(__file__).parents[3]


class TestResolve:
    def test_existing_file(self, home: Path) -> None:
        file = home / "plain"
        file.write_bytes(b"GGUF")
        assert resolve(str(file)) == file

    def test_absurd_name(self) -> None:
        with pytest.raises(UsageError, match="no model named"):
            resolve("x" * 5000)

    @pytest.mark.parametrize("text", ["no/such/file", "absent.gguf", "ABSENT.GGUF", "./x"])
    def test_what_looks_like_a_path_is_one(self, text: str) -> None:
        assert resolve(text) == Path(text)

    def test_a_file_wins_over_a_name(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(home)
        (home / "qwen3-8b").write_bytes(b"GGUF")
        assert resolve("qwen3-8b") == Path("qwen3-8b")

    def test_a_folder_does_not(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(home)
        (home / "tiny").mkdir()
        origin = home / "origin"
        origin.write_bytes(CONTENT)
        add_to_catalog(f'kind = "url", url = "{origin.as_uri()}"')
        assert resolve("tiny").read_bytes() == CONTENT

    def test_a_folder_that_is_no_name_is_for_the_loader(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(home)
        (home / "models").mkdir()
        assert resolve("models") == Path("models")

    def test_no_name(self) -> None:
        with pytest.raises(UsageError, match="the name of the model is empty"):
            resolve("")

    @pytest.mark.parametrize("url", ["https://example.com/x.gguf", "http://example.com/x"])
    def test_a_url_is_shown_as_it_was_typed(self, url: str) -> None:
        with pytest.raises(UsageError, match=f"{url} is a URL: fetch the file"):
            resolve(url)

    def test_unknown_name(self) -> None:
        with pytest.raises(UsageError, match="did you mean qwen3-8b"):
            resolve("qwen3-8bb")


class TestFile:
    def test_there(self, home: Path) -> None:
        file = home / "m.gguf"
        file.write_bytes(b"GGUF")
        assert fetch(model(FileSource(file))) == local_path(model(FileSource(file))) == file

    def test_missing(self, home: Path) -> None:
        with pytest.raises(CatalogError, match=r"no file .*m.gguf, where the catalogue says tiny"):
            fetch(model(FileSource(home / "m.gguf")))


class TestCacheFolder:
    def test_chosen(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPEC_CPU_CACHE", "~/models")
        monkeypatch.setenv("HOME", str(home))
        assert cache_dir() == home / "models"

    def test_default(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPEC_CPU_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        assert cache_dir() == home / "spec-cpu"


class TestDisk:
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
    def test_full(self, site: Site) -> None:
        wanted = model(UrlSource(site.url))
        cache_dir().mkdir()
        cache_path(wanted).with_name(cache_path(wanted).name + ".part").symlink_to("/dev/full")
        with pytest.raises(CatalogError, match=r"no space left in .*SPEC_CPU_CACHE"):
            fetch(wanted)
        assert leftovers() == []

    @pytest.mark.parametrize(
        ("number", "complaint"),
        [
            (errno.ENOSPC, "no space left in .*cache for tiny: free some, or set SPEC_CPU_CACHE"),
            (errno.EACCES, "cannot write to .*cache to store tiny: .*SPEC_CPU_CACHE"),
            (errno.EIO, "cannot store tiny in .*cache.*: set SPEC_CPU_CACHE to a folder"),
            (errno.ENOENT, "cannot store tiny in .*cache.*: set SPEC_CPU_CACHE to a folder"),
            (errno.EEXIST, "cannot store tiny in .*cache.*: move away what is in its place"),
        ],
    )
    def test_errors(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, number: int, complaint: str
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("os.replace", fail)
        with pytest.raises(CatalogError, match=complaint):
            fetch(model(UrlSource(site.url)))

    def test_the_cache_is_a_file(self, home: Path, site: Site) -> None:
        (home / "cache").write_text("in the way")
        with pytest.raises(
            CatalogError, match=r"cannot store tiny in .*: move away what is in its place"
        ):
            fetch(model(UrlSource(site.url)))


class TestTwoAtOnce:
    def test_processes(self, site: Site) -> None:
        add_to_catalog(f'kind = "url", url = "{site.url}"')
        code = "from spec_cpu.models.fetch import resolve; print(resolve('tiny'))"
        both = [
            subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        paths = {process.communicate(timeout=PATIENCE)[0].strip() for process in both}
        assert len(paths) == 1
        assert Path(paths.pop()).read_bytes() == CONTENT
        assert len(site.requests) == 1

    def test_the_one_who_waits_is_told(self, site: Site) -> None:
        site.answers.clear()
        wanted, reports = model(UrlSource(site.url)), Reports()
        first = threading.Thread(target=fetch, args=(wanted,))
        first.start()
        assert site.asked.wait(PATIENCE)

        def report(*told: Any) -> None:
            reports(*told)
            site.answers.set()

        assert fetch(wanted, report).read_bytes() == CONTENT
        first.join()
        assert reports.calls == [("waiting for another process to fetch tiny", 0, None)]
        assert len(site.requests) == 1


class TestQuantize:
    SOURCE = QuantizeSource("tiny", "Q4_0")

    @pytest.fixture
    def quantizer(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """A stand-in for llama.cpp that reverses the bytes; `tiny` is there to be made from."""
        (home / "origin").write_bytes(CONTENT)
        add_to_catalog(f'kind = "url", url = "{(home / "origin").as_uri()}"')

        def quantize(source: Path, destination: Path, type_name: str) -> None:
            destination.write_bytes(source.read_bytes()[::-1] + type_name.encode())

        module = ModuleType("spec_cpu.llama.quantize")
        module.quantize = quantize  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    @pytest.mark.usefixtures("quantizer")
    def test_made_once_from_the_other(self) -> None:
        wanted, reports = model(self.SOURCE, name="small"), Reports()
        path = fetch(wanted, reports)
        assert path.read_bytes() == CONTENT[::-1] + b"Q4_0"
        assert [name.rpartition("-")[0] for name in leftovers()] == ["small", "tiny"]
        assert reports.of("quantizing small") == [(0, None)]
        assert fetch(wanted) == local_path(wanted) == path

    @pytest.mark.usefixtures("quantizer")
    def test_another_origin_is_another_file(self, home: Path) -> None:
        wanted = model(self.SOURCE, name="small")
        before = cache_path(wanted)
        user_file().write_text(user_file().read_text().replace("origin", "elsewhere"))
        assert cache_path(wanted) != before

    def test_failure_leaves_nothing(
        self, quantizer: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_source: Path, destination: Path, _type: str) -> None:
            destination.write_bytes(b"half")
            raise ModelError("llama.cpp could not")

        monkeypatch.setattr(quantizer, "quantize", fail)
        with pytest.raises(ModelError, match="could not"):
            fetch(model(self.SOURCE, name="small"))
        assert [name.rpartition("-")[0] for name in leftovers()] == ["tiny"]
