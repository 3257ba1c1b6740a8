"""Conversations in files."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_talk import CONVERSATIONS, talk

from spec_cpu.conversations import record
from spec_cpu.conversations.record import (
    Conversation,
    load_conversation,
    parse_conversation,
    save_conversation,
)
from spec_cpu.errors import SpecCpuError, UsageError

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONVERSATIONS)
def test_what_is_saved_is_read_back(tmp_path: Path, conversation: Conversation) -> None:
    file = tmp_path / "talk.json"
    save_conversation(file, conversation)
    assert load_conversation(file) == conversation
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["talk.json"]


@given(CONVERSATIONS, st.data())
def test_a_damaged_file_is_refused_in_one_line(conversation: Conversation, data: Any) -> None:
    """Rule: whatever stands in place of a part, it is a conversation or a UsageError."""
    found = conversation.as_json()
    part = data.draw(st.sampled_from(sorted(found)))
    found[part] = data.draw(ANYTHING)
    with suppress(UsageError):
        parse_conversation(json.dumps(found), "talk.json")


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", '{"format": 1}', "[" * 100_000])
def test_what_is_no_conversation_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no saved conversation"):
        parse_conversation(text, "talk.json")


def test_a_later_version_is_refused() -> None:
    later = talk("hi").as_json() | {"version": 2}
    with pytest.raises(UsageError, match="update it"):
        parse_conversation(json.dumps(later), "talk.json")


@pytest.mark.parametrize("text", [True, False])
def test_other_files_are_not_replaced(tmp_path: Path, text: bool) -> None:
    file = tmp_path / "notes"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="holds something else"):
        save_conversation(file, talk("hi"), text=text)
    assert file.read_text(encoding="utf-8") == "mine"
    for _ in range(2):  # but its own kind is
        save_conversation(tmp_path / "talk", talk("hi", "hello"), text=text)


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("talk.json")
    save_conversation(tmp_path / "link", talk("hi"))
    assert (tmp_path / "link").is_symlink()
    assert load_conversation(tmp_path / "talk.json") == talk("hi")


def test_where_it_cannot_be_written_what_was_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "talk.json"
    save_conversation(file, talk("hi"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record.os, "replace", full)
    with pytest.raises(SpecCpuError, match="No space left"):
        save_conversation(file, talk("hi", "hello"))
    assert load_conversation(file) == talk("hi")
    assert os.listdir(tmp_path) == ["talk.json"]


def test_as_text_it_can_be_read() -> None:
    turns = "## user\n\nhi\n\n## assistant\n\nhello\n"
    assert talk("hi", "hello").as_text() == f"# With big.gguf\n\n{turns}"
