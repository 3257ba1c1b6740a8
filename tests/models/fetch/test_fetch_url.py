"""Downloads from a server that has good manners, or bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fetching import CONTENT, SHA256, Reports, Site, leftovers, model

from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import Model, UrlSource
from spec_cpu.models.fetch import fetch, local_path


class TestUrl:
    def test_whole_file(self, site: Site) -> None:
        reports = Reports()
        wanted = model(UrlSource(site.url), sha256=SHA256)
        assert local_path(wanted) is None
        path = fetch(wanted, reports)
        assert path.read_bytes() == CONTENT
        assert local_path(wanted) == path
        assert leftovers() == [path.name]
        assert reports.of("downloading tiny")[-1] == (len(CONTENT), len(CONTENT))
        assert reports.of("checking tiny")[-1] == (len(CONTENT), len(CONTENT))

    def test_second_time_asks_nobody(self, site: Site) -> None:
        wanted = model(UrlSource(site.url))
        assert fetch(wanted) == fetch(wanted)
        assert len(site.requests) == 1

    def test_another_source_is_another_file(self, site: Site) -> None:
        first = fetch(model(UrlSource(site.url)))
        assert local_path(model(UrlSource(site.url + "?v=2"))) is None
        assert fetch(model(UrlSource(site.url), sha256=SHA256)) != first

    def test_file_scheme(self, home: Path) -> None:
        origin = home / "origin"
        origin.write_bytes(CONTENT)
        assert fetch(model(UrlSource(origin.as_uri()))).read_bytes() == CONTENT
        assert origin.exists()

    def test_file_scheme_missing(self, home: Path) -> None:
        with pytest.raises(CatalogError, match=r"cannot reach .*No such file"):
            fetch(model(UrlSource((home / "absent").as_uri())))

    def interrupt(self, site: Site, wanted: Model) -> None:
        site.cut = 3_000_000
        with pytest.raises(CatalogError, match="stopped after 3,000,000 of 10,240,000 bytes"):
            fetch(wanted)
        site.cut = None

    @pytest.mark.parametrize(
        "headers",
        [
            {"ETag": '"1"'},
            {"Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"},
            {"ETag": 'W/"1"', "Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"},
        ],
    )
    def test_resumed(self, site: Site, headers: dict[str, str]) -> None:
        site.headers = headers
        wanted, reports = model(UrlSource(site.url), sha256=SHA256), Reports()
        self.interrupt(site, wanted)
        path = fetch(wanted, reports)
        assert path.read_bytes() == CONTENT
        assert site.requests[1]["Range"] == "bytes=3000000-"
        assert reports.of("downloading tiny")[0][0] > 3_000_000
        assert leftovers() == [path.name]

    def test_validator_left_out_of_the_rest(self, site: Site) -> None:
        wanted = model(UrlSource(site.url), sha256=SHA256)
        self.interrupt(site, wanted)
        site.headers, site.heeds_if_range, site.cut = {}, False, 1_000_000
        with pytest.raises(CatalogError, match=r"after 4,000,000 of .* again to resume"):
            fetch(wanted)
        site.headers, site.cut = {"ETag": '"1"'}, None
        assert fetch(wanted).read_bytes() == CONTENT
        assert site.requests[2]["If-Range"] == '"1"'

    def test_server_without_ranges(self, site: Site) -> None:
        site.ranges = False
        wanted = model(UrlSource(site.url), sha256=SHA256)
        self.interrupt(site, wanted)
        assert fetch(wanted).read_bytes() == CONTENT

    @pytest.mark.parametrize("heeds_if_range", [True, False])
    def test_changed_meanwhile(self, site: Site, heeds_if_range: bool) -> None:
        wanted = model(UrlSource(site.url))
        self.interrupt(site, wanted)
        site.content, site.headers = CONTENT[::-1], {"ETag": '"2"'}
        site.heeds_if_range = heeds_if_range
        assert fetch(wanted).read_bytes() == CONTENT[::-1]

    def test_shorter_meanwhile(self, site: Site) -> None:
        wanted = model(UrlSource(site.url))
        self.interrupt(site, wanted)
        site.content, site.heeds_if_range = b"short", False  # the server answers 416
        assert fetch(wanted).read_bytes() == b"short"

    def test_nothing_to_build_upon(self, site: Site) -> None:
        site.headers, site.cut = {}, 1000
        with pytest.raises(CatalogError, match="again to start over"):
            fetch(model(UrlSource(site.url)))
        assert leftovers() == []

    def test_wrong_checksum(self, site: Site) -> None:
        wanted = model(UrlSource(site.url), sha256="0" * 64)
        with pytest.raises(CatalogError, match=f"begins with {SHA256[:12]}, not {'0' * 12}"):
            fetch(wanted)
        assert local_path(wanted) is None
        assert leftovers() == []

    def test_after_a_wrong_checksum_it_starts_over(self, site: Site) -> None:
        good = site.content
        site.content = b"something else"
        wanted = model(UrlSource(site.url), sha256=SHA256)
        with pytest.raises(CatalogError):
            fetch(wanted)
        site.content = good
        assert fetch(wanted).read_bytes() == CONTENT

    def test_not_found(self, site: Site) -> None:
        with pytest.raises(CatalogError, match="/absent answers 404 Not Found: check the url"):
            fetch(model(UrlSource(site.url.replace("m.gguf", "absent"))))
        assert leftovers() == []

    def test_empty(self, site: Site) -> None:
        site.content = b""
        with pytest.raises(CatalogError, match="has no bytes to send"):
            fetch(model(UrlSource(site.url)))

    def test_refused(self) -> None:
        with pytest.raises(CatalogError, match=r"cannot reach 127.0.0.1:1 .*[Rr]efused.*network"):
            fetch(model(UrlSource("http://127.0.0.1:1/m.gguf")))

    def test_too_slow(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("spec_cpu.models.fetch.url.TIMEOUT", 0.05)
        site.answers.clear()
        with pytest.raises(CatalogError, match=r"cannot reach .*timed out"):
            fetch(model(UrlSource(site.url)))
        site.answers.set()

    def test_ctrl_c_keeps_the_part(self, site: Site) -> None:
        def stop(_label: str, done: int, _total: int | None) -> None:
            if done > 2_000_000:
                raise KeyboardInterrupt

        wanted = model(UrlSource(site.url), sha256=SHA256)
        with pytest.raises(KeyboardInterrupt):
            fetch(wanted, stop)
        assert fetch(wanted).read_bytes() == CONTENT
        assert "Range" in site.requests[1]
