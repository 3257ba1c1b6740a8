"""A model on the Hugging Face hub, in the hub's own cache, with its token and its endpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import HubSource, Model
from spec_cpu.models.fetch import reach
from spec_cpu.models.fetch.reach import within
from spec_cpu.models.fetch.store import check, reporting_storage
from spec_cpu.progress import Progress

# Where errors of the hub's client come from; its HTTP library differs between releases.
_CLIENT = {"huggingface_hub", "hf_xet", "httpx", "httpx2", "httpcore", "requests", "urllib3"}
# What each class of error means. By name: where the classes live differs between releases, too.
_ADVICE = {
    "GatedRepoError": (
        "access to {repo} must be asked for: accept the licence on its page on the hub, then run "
        "hf auth login, or set HF_TOKEN"
    ),
    "RepositoryNotFoundError": (
        "the hub has no repository {repo}, or it is private: check the name, or run "
        "hf auth login, or set HF_TOKEN"
    ),
    "DisabledRepoError": "the hub has disabled {repo}: choose another source",
    "RevisionNotFoundError": "{repo} has no revision {revision}: see its page on the hub",
    "EntryNotFoundError": "{repo} has no file {file} at {revision}: see its files on the hub",
    "HFValidationError": "{repo} cannot be the name of a repository on the hub",
}
_UNREACHABLE = {"LocalEntryNotFoundError", "OfflineModeIsEnabled"}
_UNAUTHORIZED = (401, 403)
_WITHOUT = "Models from pip (see spec-cpu models list) and paths of GGUF files work without it"


def cached(source: HubSource) -> Path | None:
    """The first file of `source` in the hub's cache if every one is there; asks no network."""
    from huggingface_hub import try_to_load_from_cache

    found = [
        try_to_load_from_cache(source.repo, file, revision=source.revision) for file in source.files
    ]
    paths = [Path(path) for path in found if isinstance(path, str)]
    return paths[0] if len(paths) == len(found) else None


def obtain(model: Model, source: HubSource, report: Progress) -> Path:
    """Download every file of `source`; the path of the first.

    Raises:
        CatalogError: no such repository, revision or file, access is not granted, the hub cannot
            be reached, the disk is full, or the file has another checksum than the catalogue says.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    with reporting_storage(model.name, Path(HF_HUB_CACHE)):
        paths = [_download(source, file, report) for file in source.files]
        _check(paths[0], model, report)
    return paths[0]


def remove(source: HubSource) -> None:
    """Remove every file of `source` that is in the hub's cache. Raises OSError."""
    from huggingface_hub import try_to_load_from_cache

    for file in source.files:
        found = try_to_load_from_cache(source.repo, file, revision=source.revision)
        if isinstance(found, str):
            link, contents = Path(found), Path(found).resolve()
            link.unlink()
            snapshots = next(folder for folder in link.parents if folder.name == "snapshots")
            others = (other.resolve() for other in snapshots.glob(f"*/{file}"))
            # Another revision may have them as well, and a person may have linked to a file of
            # their own.
            if contents not in others and contents.parent == snapshots.resolve().parent / "blobs":
                contents.unlink(missing_ok=True)


def _check(path: Path, model: Model, report: Progress) -> None:
    blob = path.resolve()
    try:
        check(blob, model, report)
    except CatalogError:
        path.unlink(missing_ok=True)  # the link to the blob that was removed
        raise


def _reach(source: HubSource, file: str) -> None:
    """Ask the hub once. Its client would try for minutes whether it can be reached."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return
    patience = timeout()
    try:
        url = hf_hub_url(source.repo, file, revision=source.revision)
        within(patience, lambda: get_hf_file_metadata(url, timeout=patience))
    except Exception as error:
        # It can be reached if it answers, be it with an error: the download deals with those.
        if getattr(error, "response", None) is None:
            raise


def timeout() -> float:
    """Seconds to wait for the hub's first answer. Raises CatalogError if they are no number."""
    chosen = os.environ.get("HF_HUB_ETAG_TIMEOUT")
    try:
        return float(chosen) if chosen else reach.PATIENCE
    except ValueError:
        raise CatalogError(
            f"HF_HUB_ETAG_TIMEOUT takes a number of seconds, not {chosen!r}: change or unset it"
        ) from None


def _download(source: HubSource, file: str, report: Progress) -> Path:
    from huggingface_hub import hf_hub_download

    label = f"downloading {file}"
    report(label, 0, None)  # the hub may take a while to answer
    options: dict[str, Any] = {"revision": source.revision}
    if "tqdm_class" in signature(hf_hub_download).parameters:  # older releases draw a bar
        options["tqdm_class"] = _bar(label, report)
    with explained(source, file):
        _reach(source, file)
        return Path(hf_hub_download(source.repo, file, **options))


@contextmanager
def explained(source: HubSource, file: str) -> Iterator[None]:
    """One line in place of the client's errors, and of its log of each retry."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:
        problem = _problem(error, source, file)
        if problem is None:
            raise
        raise CatalogError(problem) from error
    finally:
        logger.setLevel(level)


def _bar(label: str, report: Progress) -> type[Any]:
    """A progress bar for the hub's client that draws nothing and tells `report` instead."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **(kwargs | {"disable": True}))

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            report(label, int(self.n), self.total)

    return Bar


def _problem(error: Exception, source: HubSource, file: str) -> str | None:
    """One line on what the hub's client says and what to do, or None if it is not its error."""
    client = type(error).__module__.partition(".")[0]
    if client not in _CLIENT and not isinstance(error, (ConnectionError, TimeoutError)):
        return None  # a full disk, say
    for kind in type(error).__mro__:  # from the special to the general
        if kind.__name__ in _UNREACHABLE:
            break
        if kind.__name__ in _ADVICE:
            return _ADVICE[kind.__name__].format(
                repo=source.repo, file=file, revision=source.revision or "main"
            )
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in _UNAUTHORIZED:
        return (
            f"the hub refuses {source.repo} ({status}): run hf auth login, or set HF_TOKEN "
            "to a token that may read it"
        )
    return _unreachable(error, source.repo, file)


def _unreachable(error: Exception, repo: str, file: str) -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return (
            f"{file} of {repo} is not in the hub's cache, and HF_HUB_OFFLINE forbids to fetch it: "
            f"unset it. {_WITHOUT}"
        )
    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT)
    what = "fetch" if _answered(error) else "reach the hub to fetch"
    return (
        f"cannot {what} {file} of {repo} from {endpoint}: {_first_line(error.__cause__ or error)}. "
        f"Check the network, the proxy and HF_ENDPOINT. {_WITHOUT}"
    )


def _answered(error: Exception) -> bool:
    """Did some server answer, if not with the file?"""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    answer = getattr(error, "response", None) is not None or "FileMetadataError" in kinds
    return answer and not kinds & _UNREACHABLE


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
