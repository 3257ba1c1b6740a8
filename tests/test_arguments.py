"""Arguments of the library of a wrong type or out of range: one line that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spec_cpu
from spec_cpu import SamplingParams, Session
from spec_cpu.arguments import check_seed, expanded, paths, texts
from spec_cpu.errors import SpecCpuError, UsageError

ODD: list[Any] = [b"bytes", 2.5, object(), {}, [3], [b"a"], {"a": 1}, float("nan"), True, "no"]
"""None of these is what any argument takes, but for those that `TAKES` names."""

TAKES: dict[str, tuple[type, ...]] = {
    "prompt": (str,),
    "target": (str,),
    "draft": (str,),
    "system": (str,),
    "shape": (str,),
    "rule": (str,),
    "kernels": (str,),
    "stop": (str,),
    "lookup": (str,),
    "memory": (str,),
    "prompt_cache": (str,),
    "pair": (str,),
    "raw": (bool,),
    "repeatable": (bool,),
    "ignore_eos": (bool,),
    "special": (bool,),
    "recalibrate": (bool,),
}


def arguments(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def wrong(name: str) -> list[Any]:
    return [value for value in ODD if not isinstance(value, TAKES.get(name, ()))]


@pytest.fixture(scope="module")
def session(tiny_target: Path) -> Iterator[Session]:
    with spec_cpu.load(tiny_target, "ngram", threads=1, seed=1, k=2) as session:
        yield session


def refused(error: SpecCpuError, name: str) -> None:
    assert "\n" not in str(error)
    assert str(error).startswith(f"`{name}` takes ")
    assert len(str(error)) < 200


@pytest.mark.parametrize("name", arguments(spec_cpu.load))
def test_load(name: str, tiny_target: Path) -> None:
    for value in wrong(name):
        with pytest.raises(UsageError) as caught:
            spec_cpu.load(**{"target": tiny_target, name: value})
        refused(caught.value, name)


@pytest.mark.parametrize("name", arguments(Session.generate))
def test_generate(name: str, session: Session) -> None:
    for value in wrong(name):
        with pytest.raises(UsageError) as caught:
            session.generate(**{"prompt": "hello", name: value})
        refused(caught.value, name)
    assert session.messages == []


@pytest.mark.parametrize("name", arguments(Session.render))
def test_render(name: str, session: Session) -> None:
    for value in wrong(name):
        with pytest.raises(UsageError) as caught:
            session.render(**{"prompt": "hello", name: value})
        refused(caught.value, name)


@pytest.mark.parametrize("name", arguments(Session.calibrate))
def test_calibrate(name: str, session: Session) -> None:
    for value in wrong(name):
        with pytest.raises(UsageError) as caught:
            session.calibrate(**{"max_width": 2, name: value})
        refused(caught.value, name)


@pytest.mark.parametrize("name", arguments(SamplingParams))
def test_sampling_params(name: str) -> None:
    numbers = () if name in ("logit_bias", "top_k", "penalty_last_n") else (float,)
    taken = (dict,) if name == "logit_bias" else numbers
    for value in [*ODD, {"a": 1}, {1: "a"}]:
        if isinstance(value, taken) and value not in ({"a": 1}, {1: "a"}):
            continue
        with pytest.raises(UsageError) as caught:
            SamplingParams(**{name: value})
        refused(caught.value, name)


def test_numbers_of_other_libraries_are_told_apart(session: Session) -> None:
    """They would go a long way: into files of JSON, and into C."""
    assert SamplingParams(temperature=np.float64(0.5)).temperature == 0.5, "this one is a float"
    with pytest.raises(UsageError, match=r"`top_k` takes a whole number \(an int\), not .*5"):
        SamplingParams(top_k=np.int64(5))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`seed` takes a whole number"):
        session.generate("a", seed=np.int64(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, -(2**70)])
def test_a_seed_below_0(session: Session, tiny_target: Path, seed: int) -> None:
    with pytest.raises(UsageError, match="`seed` must be 0 or more"):
        session.generate("a", seed=seed)
    with pytest.raises(UsageError, match="`seed` must be 0 or more"):
        spec_cpu.load(tiny_target, "none", seed=seed)
    check_seed(2**70)


@pytest.mark.parametrize("name", ["target", "draft", "lookup"])
def test_a_path_with_a_nul(name: str, tiny_target: Path) -> None:
    for path in ("a\0b", "a\0b.gguf", Path("a\0b"), Path("a\0b.gguf")):
        with pytest.raises(UsageError) as caught:
            spec_cpu.load(**{"target": tiny_target, "draft": "ngram", name: path})
        refused(caught.value, name)


@pytest.mark.parametrize("text", ["\0", "a\0b", "\0ab\0\0", "a \0 b"])
def test_a_nul_in_a_text_is_a_character_like_any_other(session: Session, text: str) -> None:
    vocab = session.target.vocab
    tokens = vocab.tokenize(text, add_special=False)
    assert b"".join(map(vocab.piece, tokens)).strip() == text.strip(" ").encode()
    rendered = session.render(text)
    assert text in rendered.text
    assert len(rendered.tokens) > len(tokens)
    assert list(session.generate(text, raw=True, max_tokens=2, ignore_eos=True, stop="\0"))


def test_one_stop_string_is_one(session: Session) -> None:
    def text(stop: Any) -> str:
        steps = session.generate("tell", raw=True, seed=1, max_tokens=60, stop=stop)
        return "".join(step.text for step in steps)

    whole = text(None)
    assert text(()) == whole
    end = whole[5:8]
    assert text(end) == text([end]) == text(iter([end])) == whole[: whole.index(end)]


def test_one_file_to_look_things_up_in(tiny_target: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a text to look up")
    for lookup in (file, str(file), [file], [str(file)], (file,)):
        with spec_cpu.load(tiny_target, "ngram", threads=1, lookup=lookup) as session:
            assert session.sources
    with spec_cpu.load(tiny_target, "ngram", threads=1, lookup=None) as session:
        assert session.sources


def test_the_home_folder(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, file in (("t.gguf", tiny_target), ("d", tiny_draft)):
        (tmp_path / name).symlink_to(file)
    (tmp_path / "a.txt").write_text("a text to look up")
    for kind in (str, Path):
        with spec_cpu.load(kind("~/t.gguf"), kind("~/d"), threads=1, k=2, lookup=None) as session:
            assert session.draft_model is not None
    with spec_cpu.load("~/t.gguf", "ngram,~/d", threads=1, lookup="~/a.txt") as session:
        assert len(session.sources) == 2


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_no_path_cannot_be_expanded(text: str) -> None:
    for path in (Path(text), Path(f"~{text}")):
        again = expanded(path)
        assert again == path or str(path).startswith("~")
        assert paths("lookup", path) == [again]


def test_what_cannot_be_timed(session: Session) -> None:
    for how in ({"max_width": 0}, {"max_width": -1}, {"max_width": 2, "depth": -1}):
        with pytest.raises(UsageError, match="cannot be timed"):
            session.calibrate(**how)


def test_several_texts() -> None:
    assert texts("stop", None) == []
    assert texts("stop", "END") == ["END"]
    assert texts("stop", ("a", "b")) == ["a", "b"]
