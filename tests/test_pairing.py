"""Which models are meant by what a person names."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_cpu import defaults
from spec_cpu.draft.names import Drafts
from spec_cpu.models.catalog import load_catalog
from spec_cpu.models.fetch import local_path
from spec_cpu.pairing import choose_models


@pytest.mark.parametrize("name", ["smollm2-135m-eagle", "smollm2-135m-medusa"])
@pytest.mark.parametrize("by", ["name", "file"])
def test_a_head_alone_drafts_for_the_default_target(name: str, by: str) -> None:
    head = str(local_path(load_catalog().model(name))) if by == "file" else name
    chosen = choose_models(None, head, None)
    assert chosen.target == load_catalog().pair(defaults.PAIR).target
    assert chosen.drafts == Drafts(head)
    assert choose_models(None, f"ngram,{head}", None).drafts == Drafts(head, ngram=True)


def test_a_draft_alone_is_for_the_default_target(tiny_draft: Path) -> None:
    for draft in (str(tiny_draft), "qwen3-0.6b", "smollm2-135m-instruct"):
        choice = choose_models(None, draft, None)
        assert choice.target == choose_models(None, None, None).target
        assert str(choice.drafts.model) == draft
