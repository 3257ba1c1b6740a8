"""What a shell offers for a word that is not finished: names of the catalogue, and files.

A path is left to the shell itself, which knows folders: where nothing is offered, it offers files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import escape, glob

from spec_cpu import defaults
from spec_cpu.errors import CatalogError
from spec_cpu.models.catalog import Catalog, load_catalog
from spec_cpu.pairing import NO_DRAFT

Offer = tuple[str, str]
"""A word, and what it means."""

_LOOK_UPS = (defaults.NGRAM, "drafts from the text itself")
_NOTHING = (NO_DRAFT, "plain decoding")


def targets(incomplete: str) -> list[Offer]:
    """Models, and GGUF files here."""
    return _beginning(incomplete, [*_models(_catalog()), *_files(incomplete)])


def drafts(incomplete: str) -> list[Offer]:
    """What --draft takes; behind a comma, what can stand there."""
    before, comma, last = incomplete.rpartition(",")
    offers = [*_models(_catalog()), *_files(last)]
    if not comma:
        offers = [_LOOK_UPS, _NOTHING, *offers]
    elif before != defaults.NGRAM:
        offers = [_LOOK_UPS]
    return [(f"{before}{comma}{word}", meaning) for word, meaning in _beginning(last, offers)]


def pairs(incomplete: str) -> list[Offer]:
    """Pairs of the catalogue."""
    return _beginning(incomplete, _pairs(_catalog()))


def models(incomplete: str) -> list[Offer]:
    """Models of the catalogue."""
    return _beginning(incomplete, _models(_catalog()))


def models_and_pairs(incomplete: str) -> list[Offer]:
    """Models and pairs of the catalogue."""
    catalog = _catalog()
    return _beginning(incomplete, [*_models(catalog), *_pairs(catalog)])


def _beginning(incomplete: str, offers: Iterable[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer[0].startswith(incomplete)]


def _catalog() -> Catalog:
    """The catalogue; an empty one where it cannot be read: this is no place for messages."""
    try:
        return load_catalog()
    except CatalogError:
        return Catalog({}, {})


def _models(catalog: Catalog) -> list[Offer]:
    return [
        (model.name, f"{model.family} {model.parameters}, {model.quantization}")
        for model in catalog.models.values()
    ]


def _pairs(catalog: Catalog) -> list[Offer]:
    return [
        (pair.name, pair.note or f"{pair.target}, {pair.draft}") for pair in catalog.pairs.values()
    ]


def _files(incomplete: str) -> list[Offer]:
    if os.sep in incomplete:
        return []
    return [(name, "a file here") for name in sorted(glob(f"{escape(incomplete)}*.gguf"))]
