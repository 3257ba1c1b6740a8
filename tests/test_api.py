"""The library as people find it: what it exports, how it reads, what an answer takes."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import spec_cpu
from spec_cpu import SamplingParams, Session, UsageError

GREEDY = SamplingParams(temperature=0)
HOT = SamplingParams(temperature=1.5, top_k=0)


@pytest.fixture
def session(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, ctx=512, k=3) as session:
        yield session


# What it exports


def exported() -> list[Any]:
    return [getattr(spec_cpu, name) for name in spec_cpu.__all__]


def own_types(hint: str) -> set[str]:
    """The names of types in an annotation that are neither built in nor of the standard library."""
    known = re.compile(r"\b(?:collections\.abc|pathlib|typing|numpy|np)\.[\w.]+")
    names = set(re.findall(r"[A-Z]\w+", known.sub("", hint)))
    standard = {
        "None",
        "True",
        "False",
        "Path",
        "Any",
        "Literal",
        "Callable",
        "Iterable",
        "Iterator",
    }
    return names - standard - {"Generator", "Sequence", "Mapping", "ClassVar", "TracebackType"}


def signatures() -> Iterator[tuple[str, inspect.Signature]]:
    yield "load", inspect.signature(spec_cpu.load)
    for name in ("generate", "answer", "render", "calibrate", "close", "reset"):
        yield name, inspect.signature(getattr(Session, name))
    for name in ("Session", "Stats", "Step", "Cycle", "SamplingParams", "Drafts", "Rendered"):
        kind = getattr(spec_cpu, name)
        for key, value in inspect.getmembers(kind, lambda one: isinstance(one, property)):
            yield f"{name}.{key}", inspect.signature(value.fget)
        for key, hint in getattr(kind, "__annotations__", {}).items():
            if not key.startswith("_"):
                parameter = inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=hint)
                yield f"{name}.{key}", inspect.Signature([parameter])


def test_every_type_in_a_public_signature_is_exported() -> None:
    missing = {
        (where, name)
        for where, signature in signatures()
        for hint in [
            *(one.annotation for one in signature.parameters.values()),
            signature.return_annotation,
        ]
        for name in own_types(str(hint))
        if name not in spec_cpu.__all__
    }
    assert missing == set()


def test_all_that_is_exported_is_there_and_shown() -> None:
    assert None not in exported()
    assert set(spec_cpu.__all__) <= set(dir(spec_cpu))
    with pytest.raises(AttributeError, match="no attribute 'loud'"):
        _ = spec_cpu.loud  # type: ignore[attr-defined]


def test_importing_and_listing_it_does_not_load_llama_cpp() -> None:
    code = "import sys, spec_cpu; dir(spec_cpu); print('llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_help_shows_what_people_call() -> None:
    text = pydoc.render_doc(spec_cpu, renderer=pydoc.plaintext)
    for words in ("load(", "class Session", "generate(self", "answer(self", "class SamplingParams"):
        assert words in text, words


def test_an_answer_takes_what_its_steps_take() -> None:
    whole, steps = inspect.signature(Session.answer), inspect.signature(Session.generate)
    assert whole.parameters == steps.parameters
    assert whole.return_annotation == "str"
    text = pydoc.render_doc(Session.answer, renderer=pydoc.plaintext)
    assert "answer(self, prompt: 'str | None', " in text


def test_every_public_name_says_what_it_is() -> None:
    for thing in exported():
        if inspect.isclass(thing) or inspect.isfunction(thing):
            doc = inspect.getdoc(thing)
            assert doc, thing
            assert not doc.startswith(f"{thing.__name__}("), f"{thing}: a dataclass's own"


# How it reads


def test_a_session_reads_as_a_person_asks(session: Session, tiny_target: Path) -> None:
    assert repr(session) == (
        f"<Session: {tiny_target.name}, drafting from model; 0 of 512 tokens of context used>"
    )
    session.answer("hello", max_tokens=5)
    assert "; 0 of" not in repr(session)
    session.close()
    assert repr(session).endswith("; closed>")


# What an answer takes


def test_what_is_wrong_is_told_by_the_call_itself(session: Session) -> None:
    for wrong in ({"max_tokens": 0}, {"k": 99}, {"seed": -1}, {"rule": "best"}, {"stop": [""]}):
        with pytest.raises(UsageError):
            session.generate("hello", **wrong)  # type: ignore[arg-type]
    for prompt in ("", "x" * 5000):
        with pytest.raises(spec_cpu.SpecCpuError):
            session.generate(prompt)
    with pytest.raises(UsageError, match="logit_bias"):
        session.generate("hello", sampling=SamplingParams(logit_bias={10**6: 1.0}))
    for turns in (5, "hello", ["hello"], [{"role": "user"}], [{"role": "user", "content": None}]):
        session.messages = turns  # type: ignore[assignment]
        with pytest.raises(UsageError, match="messages are a list of turns"):
            session.generate("hello")
    session.reset()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.generate("hello")


def test_an_answer_that_nobody_reads_breaks_the_one_before_off_and_keeps_nobody_out(
    session: Session,
) -> None:
    first = session.generate("one", ignore_eos=True)
    next(first)
    unread = session.generate("two")
    with pytest.raises(UsageError, match="broken off"):
        next(first)
    del unread
    assert [turn["content"] for turn in session.messages if turn["role"] == "user"] == ["one"]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(session.answer, "three", max_tokens=3).result(30)


def test_an_answer_as_one_text(session: Session) -> None:
    how: dict[str, Any] = {"max_tokens": 30, "seed": 3, "ignore_eos": True}
    pieces = "".join(step.text for step in session.generate("hello", **how))
    session.reset()
    assert session.answer("hello", **how) == pieces
    assert session.messages[-1]["content"] == pieces


def test_sampling_and_rule_can_be_given_for_an_answer(
    session: Session, tiny_target: Path, tiny_draft: Path
) -> None:
    how: dict[str, Any] = {"raw": True, "max_tokens": 30, "ignore_eos": True}
    for sampling, rule in product((GREEDY, HOT), ("block", "token", "typical")):
        with spec_cpu.load(
            tiny_target,
            tiny_draft,
            threads=1,
            k=3,
            sampling=sampling,
            rule=rule,
            seed=5,
            shape="chain",
        ) as own:
            expected = own.answer("hello", **how)
            exact = own.exact
        assert session.answer("hello", sampling=sampling, rule=rule, seed=5, **how) == expected
        assert session.exact == exact == (rule != "typical" or sampling is GREEDY)


# Seeds


SEEDS = (7, 8, 9, 10)


@pytest.fixture(params=["none", "ngram", "model", "ngram,model"])
def drafted(
    request: pytest.FixtureRequest,
    tiny_target: Path,
    tiny_draft: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Options for a session that drafts much: passes are said to cost little."""

    def said(*_what: object, max_width: int, **_how: object) -> spec_cpu.Costs:
        passes = tuple(1 + 0.02 * n for n in range(max_width))
        return spec_cpu.Costs(passes, draft_step=0.5, draft_catch_up=0.0, rebuild=0.0, row=0.0)

    monkeypatch.setattr("spec_cpu.costs.measure.measure", said)
    monkeypatch.setattr("spec_cpu.draft.load.RECYCLED_FROM", 0)  # as for a large target
    draft = str(request.param).replace("model", str(tiny_draft))
    return {"target": tiny_target, "draft": draft, "threads": 1, "recalibrate": True}


def test_the_same_seed_gives_the_same_answer_whatever_was_asked_before(
    drafted: dict[str, Any],
) -> None:
    how: dict[str, Any] = {"raw": True, "max_tokens": 60, "ignore_eos": True}
    with spec_cpu.load(**drafted) as session:
        before = [session.answer("hello", seed=seed, **how) for seed in SEEDS]
        for other in ("hello hello hello, and more of it", "hello", "something else"):
            session.answer(other, seed=1, repeatable=False, **how)
            session.answer(other, sampling=GREEDY, seed=1, repeatable=False, **how)
        after = [session.answer("hello", seed=seed, **how) for seed in SEEDS]
    assert after == before
    assert len(set(before)) == len(SEEDS)
    with spec_cpu.load(**drafted, seed=SEEDS[0]) as session:
        session.answer("something else", **how)
        assert session.answer("hello", **how) == before[0]
        assert session.seed == SEEDS[0]


def test_without_a_seed_each_answer_has_one_of_its_own(tiny_target: Path) -> None:
    how: dict[str, Any] = {"raw": True, "max_tokens": 20, "ignore_eos": True, "sampling": HOT}
    with spec_cpu.load(tiny_target, "none", threads=1) as session:
        first = session.answer("hello", **how)
        seed = session.seed
        assert session.answer("hello", **how) != first
        assert session.answer("hello", seed=seed, **how) == first


# What is loaded


def test_a_target_alone_drafts_from_the_text(tiny_target: Path) -> None:
    with spec_cpu.load(tiny_target, threads=1) as session:
        assert [drafter.name for drafter in session.sources] == ["ngram"]
        assert "`draft`" in session.notices[0]
    with spec_cpu.load(tiny_target, "none", threads=1) as session:
        assert session.sources == session.notices == []


def test_a_pair_and_names_of_the_catalogue(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "spec-cpu" / "models.toml"
    file.parent.mkdir()
    entry = 'family = "f"\nparameters = "1"\nquantization = "F32"\nlicense = "l"\n'
    file.write_text(
        "".join(
            f'[models.{name}]\n{entry}source = {{ kind = "file", path = "{path}" }}\n'
            for name, path in (("large", tiny_target), ("small", tiny_draft))
        )
        + '[pairs.both]\ntarget = "large"\ndraft = "small"\n'
    )
    with spec_cpu.load(pair="both", threads=1) as session:
        assert {drafter.name for drafter in session.sources} == {"ngram", "model"}
    with spec_cpu.load("large", "small", threads=1) as session:
        assert session.target.path == tiny_target
    with pytest.raises(UsageError, match="not both"):
        spec_cpu.load("large", pair="both")
