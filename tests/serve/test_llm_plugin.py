"""The plugin for `llm`, with tiny models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up import measured

from spec_cpu.models.catalog import load_catalog

llm = pytest.importorskip("llm")
llm_spec_cpu = pytest.importorskip("llm_spec_cpu")
pytestmark = pytest.mark.filterwarnings("ignore")  # what others warn of is their own matter

SOME = {"max_tokens": 12, "temperature": 0}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("spec_cpu.costs.measure.measure", measured)
    model = llm_spec_cpu.SpecCpu("gguf")
    yield model
    model.close()


def test_the_catalogue_is_there_by_name() -> None:
    found: list[Any] = []
    llm_spec_cpu.register_models(found.append)
    names = {one.model_id.removeprefix("spec-cpu/") for one in found}
    assert len(names) == len(found)
    catalogue = load_catalog()
    assert set(catalogue.pairs) <= names <= {*catalogue.pairs, *catalogue.models, "gguf"}
    assert {"smollm2-135m", "smollm2-135m-instruct", "gguf"} <= names
    assert not {"smollm2-135m-eagle", "smollm2-135m-medusa"} & names  # heads answer nothing


def test_llm_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from llm.plugins import pm

    pm.register(llm_spec_cpu, "spec_cpu")
    try:
        assert llm.get_model("spec-cpu/gguf").can_stream
    finally:
        pm.unregister(llm_spec_cpu)


def test_an_answer(model: Any, tiny_target: Path, tiny_draft: Path) -> None:
    import spec_cpu

    given = {"target": str(tiny_target), **SOME}
    parts = list(model.prompt("Hi", system="Be brief.", **given))
    with spec_cpu.load(tiny_target, system="Be brief.") as session:
        greedy = spec_cpu.SamplingParams(temperature=0)
        said = session.answer("Hi", max_tokens=12, sampling=greedy)
    response = model.prompt("Hi", system="Be brief.", draft=str(tiny_draft), **given)
    assert response.text() == "".join(parts) == said
    assert response.usage().output == 12
    assert response.response_json["finish"] == "length"
    assert response.response_json["drafted"] > 0


def test_a_conversation_is_remembered(model: Any, tiny_target: Path) -> None:
    talk = model.conversation()
    first = talk.prompt("Hi", system="Be brief.", target=str(tiny_target), **SOME).text()
    talk.prompt("And?", target=str(tiny_target), **SOME).text()
    (_, session) = model._loaded
    assert [turn["content"] for turn in session.messages[:4]] == ["Be brief.", "Hi", first, "And?"]


def test_what_is_wrong_is_one_line(model: Any, tmp_path: Path) -> None:
    for given in ({}, {"target": str(tmp_path / "none.gguf")}):
        with pytest.raises(llm.ModelError) as refused:
            model.prompt("Hi", **given).text()
        assert "\n" not in str(refused.value)
