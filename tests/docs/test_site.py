"""The documentation is built without a warning, and a page of it fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]* src=["']?(?:https?:)?//|<link[^>]*"""
    r""" href=["']?(?:https?:)?//(?![^>]*rel=["']?canonical)|url\(["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def build(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: warnings that are not logged are not counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("wrong", ["[nowhere](nowhere.md)", "[no such part](index.md#nowhere)"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{wrong}\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav:\n  - index.md\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stderr


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES[1:]:
        assert (site / page.with_suffix(".html").name).is_file(), page.name


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css", ".svg")]
    assert len(files) > 10
    assert [
        (file.name, found[0])
        for file in files
        for found in FETCHED.finditer(file.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.b/c.js">',
        "<img alt='' src=//a.b/c.png>",
        '<link rel="stylesheet" href="https://a.b/c.css">',
        "url(https://a.b/c.woff2)",
    ],
)
def test_what_would_be_fetched_is_found(text: str) -> None:
    assert FETCHED.search(text)


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    assert len(readme.splitlines()) < 100
    links = re.findall(r"\]\((?!http)([^)#]+)", readme)
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []
