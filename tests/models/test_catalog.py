"""The catalogue: what parses, what does not, who wins, and the commands that show it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_cpu_cli.models import app
from spec_cpu_cli.progress import download_progress
from typer.testing import CliRunner, Result

from spec_cpu import defaults
from spec_cpu.errors import CatalogError, SpecCpuError, UsageError
from spec_cpu.heads.file import read_head
from spec_cpu.models.catalog import (
    Catalog,
    FileSource,
    HubSource,
    Model,
    Pair,
    UrlSource,
    WheelSource,
    _parse,
    load_catalog,
    user_file,
)

names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,12}", fullmatch=True).filter(
    lambda name: not name.endswith(".gguf")
)
texts = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
sizes = st.none() | st.integers(1, 2**40)
sources = st.one_of(
    st.builds(UrlSource, texts.map(lambda text: f"https://host.example/{text}")),
    st.builds(HubSource, st.just("owner/name"), texts, st.none() | texts),
    st.builds(WheelSource, names, texts, sizes),
)
models = st.builds(
    Model,
    name=names,
    family=texts,
    parameters=texts,
    quantization=texts,
    license=texts,
    source=sources,
    bytes=sizes,
    sha256=st.none() | st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
)


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own catalogue, not written yet; the cache is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPEC_CPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    file = user_file()
    file.parent.mkdir(parents=True)
    return file


def entry(source: str, *, name: str = "mine", more: str = "") -> str:
    """The TOML of one model."""
    return (
        f'[models."{name}"]\nfamily = "F"\nparameters = "1B"\nquantization = "Q4_0"\n'
        f'license = "MIT"\n{more}\nsource = {{ {source} }}\n'
    )


def toml(model: Model) -> str:
    source = {"kind": model.source.kind} | {
        key: getattr(model.source, key) for key in model.source.__slots__
    }
    inline = ", ".join(f"{k} = {json_text(v)}" for k, v in source.items() if v is not None)
    rows = {key: getattr(model, key) for key in model.__slots__ if key not in ("name", "source")}
    lines = [f"{key} = {json_text(value)}" for key, value in rows.items() if value is not None]
    return "\n".join([f'[models."{model.name}"]', *lines, f"source = {{ {inline} }}", ""])


def json_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


class TestBuiltIn:
    def test_default_pair_needs_no_hub(self) -> None:
        catalog = load_catalog()
        pair = catalog.pair(defaults.PAIR)
        assert isinstance(catalog.model(pair.target).source, WheelSource)
        source = catalog.model(pair.draft).source
        assert isinstance(source, FileSource)
        assert source.path.is_file(), "its head comes with the package"

    def test_every_pair_has_a_target_bigger_than_its_draft(self) -> None:
        catalog = load_catalog()
        assert len(catalog.pairs) >= 6
        for pair in catalog.pairs.values():
            target, draft = catalog.model(pair.target).bytes, catalog.model(pair.draft).bytes
            assert target is not None
            assert draft is not None
            assert draft < target
            assert pair.note

    def test_shipped_heads_are_small_and_say_what_they_are(self) -> None:
        """All heads in the package take 8 MB at most; each has a card and its acceptance."""
        heads = [
            (model, model.source.path)
            for model in load_catalog().models.values()
            if isinstance(model.source, FileSource) and model.source.path.parent.name == "shipped"
        ]
        assert heads
        assert sum(path.stat().st_size for _, path in heads) <= 8e6
        for model, path in heads:
            label = read_head(path).label
            assert model.bytes == path.stat().st_size
            assert "tokens" in label.card
            assert label.acceptance
            assert label.target.name

    def test_the_official_qwen_comes_in_parts(self) -> None:
        source = load_catalog().model("qwen2.5-7b-instruct").source
        assert isinstance(source, HubSource)
        assert source.files == (
            "qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf",
            "qwen2.5-7b-instruct-q4_k_m-00002-of-00002.gguf",
        )


class TestParsing:
    @given(models)
    def test_what_is_written_is_read(self, model: Model) -> None:
        assert _parse(toml(model), Path("x.toml")) == Catalog({model.name: model}, {})

    @given(st.integers(1, 40), st.data())
    def test_any_part_names_all_parts(self, count: int, data: st.DataObject) -> None:
        index = data.draw(st.integers(1, count))
        files = HubSource("a/b", f"m-{index:05}-of-{count:05}.gguf").files
        assert len(set(files)) == count
        assert files[0] == f"m-00001-of-{count:05}.gguf"
        assert files[index - 1] == f"m-{index:05}-of-{count:05}.gguf"

    def test_a_single_file_is_its_only_part(self) -> None:
        assert HubSource("a/b", "m.gguf").files == ("m.gguf",)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("models = [", "not valid TOML"),
            ("[model.x]", "model: no such key; there are models, pairs"),
            ("models = 1", "models: must be a table"),
            ("[models]\nx = 1", r"\[models\] x: must be a table"),
            ('[models.x]\nfamily = "F"', r"\[models.x\] source: is missing"),
            (entry('kind = "ftp"'), r"\[models.mine.source\] kind: must be one of file, shipped"),
            (entry('path = "x"'), "kind: is missing"),
            (entry('kind = "file"'), "path: is missing"),
            (entry('kind = "file", path = 3'), "path: must be text, not 3"),
            (entry('kind = "file", path = " "'), "path: must be text"),
            (entry('kind = "file", path = "x", url = "y"'), "url: no such key"),
            (entry('kind = "hub", repo = "x", file = "y"'), "repo: must be of the form owner/name"),
            (entry('kind = "hub", repo = "a/b", file = "m-00001-of-00000.gguf"'), "no parts"),
            (entry('kind = "url", url = "ftp://h/x"'), "url: must begin with one of http"),
            (entry('kind = "url", url = "http://[x"'), "url: Invalid IPv6"),
            (entry('kind = "wheel", requirement = "-r x", member = "m"'), "not an option"),
            (entry('kind = "quantize", of = "absent", type = "Q4_0"'), "of: no model named"),
            (entry('kind = "quantize", of = "mine", type = "Q4_0"'), "'mine' is made from itself"),
            (
                entry('kind = "url", url = "http://h/x"', more="bytes = 0"),
                "bytes: must be a number",
            ),
            (entry('kind = "url", url = "http://h/x"', more="bytes = true"), "bytes: must be"),
            (entry('kind = "url", url = "http://h/x"', more='sha256 = "1f"'), "64 hex digits"),
            (entry('kind = "url", url = "http://h/x"', name="a.gguf"), "ends not in .gguf"),
            (entry('kind = "url", url = "http://h/x"', name="../a"), r"\.\./a: a name is of"),
            ('[pairs.x]\ntarget = "absent"\ndraft = "absent"', r"\[pairs.x\] target: no model"),
            (
                entry(
                    'kind = "hub", repo = "a/b", file = "m-00001-of-00002.gguf"',
                    more=f'sha256 = "{"0" * 64}"',
                ),
                "several parts",
            ),
        ],
    )
    def test_malformed(self, own: Path, text: str, complaint: str) -> None:
        own.write_text(text)
        with pytest.raises(CatalogError, match=complaint) as caught:
            load_catalog()
        assert str(own) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_not_text(self, own: Path) -> None:
        own.write_bytes(b"\xff\xfe")
        with pytest.raises(CatalogError, match="cannot read the catalogue"):
            load_catalog()


class TestOwnEntries:
    def test_relative_paths_start_at_the_file(self, own: Path) -> None:
        own.write_text(entry('kind = "file", path = "sub/x.gguf"'))
        assert load_catalog().model("mine").source == FileSource(own.parent / "sub/x.gguf")

    def test_absolute_paths_stay(self, own: Path) -> None:
        own.write_text(entry('kind = "file", path = "/x.gguf"'))
        assert load_catalog().model("mine").source == FileSource(Path("/x.gguf"))

    def test_they_win(self, own: Path) -> None:
        before = load_catalog()
        own.write_text(
            entry('kind = "url", url = "http://h/x"', name="qwen3-8b")
            + f'[pairs."{defaults.PAIR}"]\ntarget = "qwen3-8b"\ndraft = "qwen3-0.6b"\n'
        )
        catalog = load_catalog()
        assert catalog.model("qwen3-8b").source == UrlSource("http://h/x")
        assert catalog.pair(defaults.PAIR) == Pair(defaults.PAIR, "qwen3-8b", "qwen3-0.6b", "")
        assert catalog.models.keys() == before.models.keys()

    def test_sha256_may_be_in_capitals(self, own: Path) -> None:
        own.write_text(entry('kind = "file", path = "x"', more=f'sha256 = "{"AB" * 32}"'))
        assert load_catalog().model("mine").sha256 == "ab" * 32


class TestUnknownNames:
    @pytest.mark.parametrize("name", list(load_catalog().models))
    def test_a_slip_of_the_finger_is_understood(self, name: str) -> None:
        with pytest.raises(UsageError, match=f"did you mean .*{name}.*see spec-cpu models list"):
            load_catalog().model(name[:-1].upper())

    def test_pairs_too(self) -> None:
        with pytest.raises(UsageError, match=r"no pair named 'qwen3-9b'; did you mean .*qwen3-8b"):
            load_catalog().pair("qwen3-9b")

    def test_nothing_near(self) -> None:
        with pytest.raises(UsageError, match=r"no model named 'zz' \(see spec-cpu models list\)"):
            load_catalog().model("zz")


class TestCommands:
    @staticmethod
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    @pytest.fixture
    def here(self, own: Path) -> Path:
        """A model that is on this machine, in the catalogue as `mine`."""
        file = own.parent / "mine.bin"
        file.write_bytes(b"GGUF")
        own.write_text(
            entry('kind = "file", path = "mine.bin"')
            + '[pairs.ours]\ntarget = "mine"\ndraft = "mine"\n'
        )
        return file

    def test_list(self, here: Path) -> None:
        output = self.run("list").output
        rows = {line.split()[0]: line.split() for line in output.splitlines() if line}
        assert rows["mine"][-2:] == ["file", "yes"]
        assert rows["qwen3-0.6b"][-2:] == ["hub", "no"]
        assert rows["ours"] == ["ours", "mine", "mine"]
        assert str(here.parent) in output

    def test_list_shows_text_not_markup(self, own: Path) -> None:
        own.write_text(entry('kind = "file", path = "x"').replace('"MIT"', '"[red]:x:"'))
        assert "[red]:x:" in self.run("list").output

    def test_list_json(self, here: Path) -> None:
        listed = json.loads(self.run("list", "--json").output)
        by_name = {model["name"]: model for model in listed["models"]}
        assert by_name["mine"]["path"] == str(here)
        assert by_name["qwen3-8b"]["path"] is None
        assert by_name["qwen3-8b"]["source"]["kind"] == "hub"
        assert {"name": "ours", "target": "mine", "draft": "mine", "note": ""} in listed["pairs"]

    def test_show(self, here: Path) -> None:
        output = self.run("show", "mine").output
        assert "source.kind          file" in output
        assert f"path                 {here}" in output

    def test_show_json(self) -> None:
        assert json.loads(self.run("show", "qwen3-8b", "--json").output)["license"] == "Apache-2.0"
        assert json.loads(self.run("show", "qwen3-8b", "--json").output)["bytes"] == 5027783488

    def test_show_pair(self) -> None:
        assert (
            "target               smollm2-135m-instruct" in self.run("show", defaults.PAIR).output
        )

    def test_path(self, here: Path) -> None:
        assert self.run("path", "mine").output == f"{here}\n"

    def test_path_of_what_is_not_here(self) -> None:
        error = self.run("path", "qwen3-8b").exception
        assert isinstance(error, CatalogError)
        assert error.exit_code == 1
        assert "spec-cpu models pull qwen3-8b" in str(error)

    def test_pull(self, own: Path) -> None:
        origin = own.parent / "origin"
        origin.write_bytes(b"GGUF")
        own.write_text(
            entry(f'kind = "url", url = "{origin.as_uri()}"', name="one")
            + entry(f'kind = "url", url = "{origin.as_uri()}"', name="two")
            + '[pairs.both]\ntarget = "one"\ndraft = "two"\n'
        )
        result = self.run("pull", "both", "one")
        assert result.exit_code == 0
        pulled = [line.split() for line in result.output.splitlines()]
        assert [name for name, _ in pulled] == ["one", "two"]
        assert all(Path(path).read_bytes() == b"GGUF" for _, path in pulled)

    @pytest.mark.parametrize("command", ["show", "pull", "path"])
    def test_unknown_names(self, command: str) -> None:
        error = self.run(command, "qwen3-8").exception
        assert isinstance(error, SpecCpuError)
        assert error.exit_code == 2
        assert "qwen3-8b" in str(error)


class TestProgress:
    def test_silent_without_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        with download_progress() as report:
            report("downloading it", 1, 2)
        assert capsys.readouterr() == ("", "")

    def test_drawn_on_standard_error(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        monkeypatch.setattr("spec_cpu_cli.terminal.size", lambda _: os.terminal_size((80, 24)))
        with download_progress() as report:
            report("downloading [it]", 0, None)
            report("downloading [it]", 1_000_000, 2_000_000)
        out, err = capsys.readouterr()
        assert out == ""
        assert "downloading [it]" in err
        assert "1.0/2.0 MB" in err
