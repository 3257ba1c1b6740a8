"""A prompt in a file: what begins alike is not read again, and the answer is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spec_cpu
from spec_cpu.cache import lock_file
from spec_cpu.errors import UsageError

LONG = "The river runs down to the sea, and the sea has room for it. " * 3
Ask = Callable[..., tuple[str, int, list[str]]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prompt.cache"


@pytest.fixture
def ask(tiny_target: Path, tiny_draft: Path, file: Path) -> Ask:
    """An answer by a session of its own: the text, the tokens that were not read, notices."""

    def ask(
        prompt: str,
        *,
        cached: bool = True,
        target: Path = tiny_target,
        draft: str | Path = tiny_draft,
        ctx: int | None = None,
    ) -> tuple[str, int, list[str]]:
        kept = file if cached else None
        with spec_cpu.load(
            target, draft, k=3, seed=1, ctx=ctx, threads=1, prompt_cache=kept
        ) as session:
            text = session.answer(prompt, max_tokens=12, ignore_eos=True)
            notices = [notice for notice in session.notices if str(file) in notice]
            return text, session.stats.reused_tokens, notices

    return ask


def test_what_begins_alike_is_not_read_again(ask: Ask, file: Path) -> None:
    _, reused, _ = ask(LONG + "one")
    assert reused == 0
    for end in ("one", "two", "three and more"):
        plain, none, _ = ask(LONG + end, cached=False)
        text, reused, notices = ask(LONG + end)
        assert (text, notices, none) == (plain, [], 0)
        assert reused >= len(LONG)  # a token is a byte here, beside the template's own
    assert file.stat().st_mode & 0o077 == 0
    assert list(file.parent.glob(f".{file.name}*")) == [], "nothing stays beside it"


def test_the_file_is_left_alone_where_it_has_all(ask: Ask, file: Path) -> None:
    ask(LONG)
    before, held = file.stat().st_mtime_ns, file.read_bytes()
    ask(LONG)
    assert file.stat().st_mtime_ns == before
    ask("something else")
    assert file.read_bytes() != held


def test_a_text_with_nothing_in_common_is_read(ask: Ask) -> None:
    ask(LONG)
    assert ask("Something else.")[0] == ask("Something else.", cached=False)[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(st.text("ab", min_size=1, max_size=30), st.text("ab", min_size=1, max_size=30))
def test_the_answer_is_the_one_without(ask: Ask, file: Path, before: str, prompt: str) -> None:
    """Law: whatever was kept, the answer is the one that there is without it."""
    file.unlink(missing_ok=True)
    ask(before)
    assert ask(prompt)[0] == ask(prompt, cached=False)[0]


@pytest.mark.parametrize("draft", ["none", "ngram"])
def test_with_every_kind_of_draft(ask: Ask, draft: str) -> None:
    ask(LONG, draft=draft)
    plain = ask(LONG + "b", draft=draft, cached=False)[0]
    text, reused, _ = ask(LONG + "b", draft=draft)
    assert text == plain
    assert reused >= len(LONG)


def test_a_file_for_all_drafts(ask: Ask) -> None:
    """What drafts reads the prompt itself, so that the file of another draft will do."""
    ask(LONG, draft="none")
    text, reused, _ = ask(LONG + "b")
    assert text == ask(LONG + "b", cached=False)[0]
    assert reused >= len(LONG)


def test_another_model_is_refused_and_nothing_is_lost(
    ask: Ask, file: Path, tiny_draft: Path
) -> None:
    ask(LONG)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="prompt cache of another model"):
        ask(LONG, target=tiny_draft, draft="none")
    assert file.read_bytes() == before


def test_somebodys_own_file_is_refused_and_stays(ask: Ask, file: Path) -> None:
    file.write_text("my diary")
    with pytest.raises(UsageError, match="is no prompt cache of spec-cpu"):
        ask(LONG)
    assert file.read_text() == "my diary"


@pytest.mark.parametrize("place", ["spec", "digest", "label", "tokens", "state", "cut", "version"])
def test_a_damaged_file_is_said_and_written_anew(ask: Ask, file: Path, place: str) -> None:
    ask(LONG)
    data = bytearray(file.read_bytes())
    lines = [0, *(at + 1 for at, byte in enumerate(data) if byte == ord("\n"))][:4]
    at = {"digest": lines[1], "label": lines[2] + 5, "tokens": lines[3] + 1, "state": -9}.get(place)
    if place == "cut":
        del data[-10:]
    elif place == "version":
        data[: lines[1]] = b"spec-cpu prompt cache, format 0\n"
    elif place == "spec":
        data[len("spec-cpu prompt cache, form")] ^= 1
    else:
        assert at is not None
        data[at] ^= 1
    file.write_bytes(data)
    text, reused, notices = ask(LONG)
    assert text == ask(LONG, cached=False)[0]
    assert reused == 0
    assert any("damaged, or of another version" in notice for notice in notices)
    assert ask(LONG)[1] > 0


def test_an_empty_file_is_filled(ask: Ask, file: Path) -> None:
    file.touch()
    assert ask(LONG)[1:] == (0, [])
    assert ask(LONG)[1] >= len(LONG)


def test_other_settings_are_said(ask: Ask, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    ask(LONG)
    monkeypatch.setattr("spec_cpu.loading.version", lambda _: "9.9")
    text, reused, notices = ask(LONG)
    assert text == ask(LONG, cached=False)[0]
    assert reused == 0
    assert any("made with other settings (llama.cpp" in notice for notice in notices)
    assert b"llama.cpp 9.9" in file.read_bytes()


def test_a_text_longer_than_the_context_is_not_used(ask: Ask) -> None:
    ask(LONG)
    text, reused, notices = ask("The river", ctx=64)
    assert text == ask("The river", ctx=64, cached=False)[0]
    assert reused == 0
    assert any("do not fit into this context" in notice for notice in notices)


def test_a_missing_folder_is_refused(ask: Ask, file: Path, tiny_target: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        spec_cpu.load(tiny_target, "none", prompt_cache=file / "absent" / "file")
    with pytest.raises(UsageError, match="is no file"):
        spec_cpu.load(tiny_target, "none", prompt_cache=file.parent)


def test_two_processes_at_once(ask: Ask, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot have the lock answers all the same; what was there stays whole."""
    ask(LONG)
    before = file.read_bytes()
    monkeypatch.setattr("spec_cpu.prompt_cache._PATIENCE", 0.01)
    with FileLock(lock_file(file)):
        text, _, notices = ask("Something else.")
    assert text == ask("Something else.", cached=False)[0]
    assert any("another process has" in notice for notice in notices)
    assert file.read_bytes() == before


def test_a_recurrent_memory(tmp_path: Path, ask: Ask) -> None:
    mamba = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=320, n_ctx=2048)
    asked = {"target": mamba, "draft": "none"}
    ask(LONG, **asked)
    for prompt in (LONG, LONG + "b", LONG[:30], "Other."):
        assert ask(prompt, **asked)[0] == ask(prompt, cached=False, **asked)[0]


def test_only_the_first_prompt_is_kept(tiny_target: Path, file: Path) -> None:
    with spec_cpu.load(tiny_target, "none", seed=1, threads=1, prompt_cache=file) as session:
        session.answer(LONG, max_tokens=3)
        before = file.stat().st_mtime_ns
        session.answer("And then?", max_tokens=3)
        assert file.stat().st_mtime_ns == before
