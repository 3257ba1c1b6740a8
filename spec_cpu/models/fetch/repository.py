"""Any repository of the Hugging Face hub by its name: which of its files is meant.

`OWNER/NAME:QUANT` names a quantization, such as Q8_0. Files are chosen as llama.cpp chooses them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import HubSource, Model
from spec_cpu.models.fetch.reach import within

_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(:(?P<quant>[\w.-]+))?")
_PREFERRED = ("Q4_K_M", "Q8_0")  # where no quantization is named; then the first file
_PART = re.compile(r"-(?P<index>\d{5})-of-\d{5}$")
_QUANT = re.compile(r"[-.](?P<quant>[A-Z0-9_]+)$", re.IGNORECASE)
_OTHERS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""In the names of files that are no language model: projectors, and what drafts within one."""
_FOLDER = "models--"  # of a repository in the hub's cache


def is_name(text: str) -> bool:
    """Does it name a repository, rather than a file? Where a folder OWNER is here, a file."""
    owner = text.partition("/")[0]
    return (
        _NAME.fullmatch(text) is not None
        and not text.lower().endswith(".gguf")
        and not os.path.isdir(owner)
    )


def find(name: str) -> Model:
    """The model behind a name, with the file that is meant. Asks the hub unless it is here.

    Raises:
        CatalogError: no such repository, it has no such file, or the hub cannot be reached and
            nothing of it is here.
    """
    repo, quant = _parsed(name)
    here = local(name)
    if here is not None:
        return here
    try:
        files = _listed(repo)
    except CatalogError:
        file = choose(_cached(repo), quant)
        if file is None:
            raise
        return _model(repo, file)
    file = choose(files, quant)
    if file is None:
        raise CatalogError(_no_file(repo, quant, files))
    return _model(repo, file)


def local(name: str) -> Model | None:
    """The model behind a name if it is here, and would be chosen; asks no network."""
    repo, quant = _parsed(name)
    file = choose(_cached(repo), quant or _PREFERRED[0])
    return None if file is None else _model(repo, file)


def downloaded() -> list[Model]:
    """Every model of a repository that is here, by name."""
    return [_model(repo, file) for repo in _cached_repositories() for file in _cached(repo)]


def choose(files: Sequence[str], quant: str | None) -> str | None:
    """The file to load; of a model in parts, the first one. None: there is none that fits.

    Args:
        quant: the quantization; default: Q4_K_M, else Q8_0, else the first file there is.
    """
    models = list(_models(files))
    for wanted in _PREFERRED if quant is None else (quant,):
        pattern = re.compile(re.escape(wanted) + "[.-]", re.IGNORECASE)
        for file in models:
            if pattern.search(file):
                return file
    return models[0] if models and quant is None else None


def _models(files: Sequence[str]) -> Iterator[str]:
    """Those of `files` that a language model is loaded from."""
    for file in files:
        name = file.rpartition("/")[2]
        part = _PART.search(name.removesuffix(".gguf"))
        is_first = part is None or int(part["index"]) == 1
        if name.endswith(".gguf") and is_first and not any(other in name for other in _OTHERS):
            yield file


def _parsed(name: str) -> tuple[str, str | None]:
    found = _NAME.fullmatch(name)
    assert found, f"{name!r} is no name of a repository"
    return found["repo"], found["quant"]


def _model(repo: str, file: str) -> Model:
    quant = _quant(file)
    name = f"{repo}:{quant}" if quant else repo
    return Model(name, "-", "-", quant or "-", "-", HubSource(repo, file))


def _quant(file: str) -> str | None:
    """The quantization that a file's name ends in."""
    found = _QUANT.search(_PART.sub("", file.removesuffix(".gguf")))
    return found["quant"].upper() if found else None


def _listed(repo: str) -> list[str]:
    """The files of a repository, as the hub lists them."""
    from huggingface_hub import model_info

    from spec_cpu.models.fetch import hub

    patience = hub.timeout()
    with hub.explained(HubSource(repo, ""), "the list of files"):
        found = within(patience, lambda: model_info(repo, timeout=patience))
    return [one.rfilename for one in found.siblings or ()]


def _no_file(repo: str, quant: str | None, files: Sequence[str]) -> str:
    if not any(_models(files)):
        return f"{repo} has no GGUF of a language model: see its files on the hub"
    there = dict.fromkeys(filter(None, map(_quant, _models(files))))
    return f"{repo} has no file for {quant}; it has {', '.join(there) or 'others'}"


def _cached_repositories() -> list[str]:
    from huggingface_hub import constants

    folders = sorted(Path(constants.HF_HUB_CACHE).glob(f"{_FOLDER}*--*"))
    return [folder.name.removeprefix(_FOLDER).replace("--", "/", 1) for folder in folders]


def _cached(repo: str) -> list[str]:
    """The models of a repository in the hub's cache that are there as a whole."""
    from huggingface_hub import constants

    from spec_cpu.models.fetch import hub

    folder = Path(constants.HF_HUB_CACHE) / f"{_FOLDER}{repo.replace('/', '--')}"
    try:
        snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except OSError:
        return []
    files = sorted(file.relative_to(snapshot).as_posix() for file in snapshot.rglob("*.gguf"))
    return [file for file in _models(files) if hub.cached(HubSource(repo, file))]
