"""Nothing is lost: reloads, two tabs at once, files, and a server that goes and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_page import ChatPage
from playwright.sync_api import BrowserContext, expect
from stub_server import Stub


@pytest.fixture
def other(context: BrowserContext, chat: ChatPage) -> Iterator[ChatPage]:
    """A second tab of the same person."""
    made = ChatPage(context.new_page(), chat.stub)
    made.open()
    yield made
    assert made.problems == []
    made.page.close()


def read_conversations(chat: ChatPage, text: str | bytes) -> None:
    content = text.encode() if isinstance(text, str) else text
    file = {"name": "saved.json", "mimeType": "application/json", "buffer": content}
    chat.page.locator("#import-input").set_input_files(file)  # type: ignore[arg-type]


def exported(chat: ChatPage, button: str = "Export all") -> str:
    with chat.page.expect_download() as waiting:
        chat.button(button).click()
    path = waiting.value.path()
    return Path(path).read_text(encoding="utf-8")


def test_a_reload_keeps_all_of_it(chat: ChatPage) -> None:
    chat.ask("One?", "First.")
    chat.field.fill("half a thou")
    chat.page.reload()
    expect(chat.questions).to_have_text("One?")
    expect(chat.answers).to_have_text("First.")
    expect(chat.field).to_have_value("half a thou")
    assert chat.titles == ["One?"]


def test_a_reload_amid_an_answer_keeps_what_was_said(chat: ChatPage, stub: Stub) -> None:
    stub.say("One two three four five.", hold_at=2)
    chat.send("Count.")
    chat.said("One two three four")
    saved = """async () => {
        const open = indexedDB.open("spec-cpu");
        await new Promise((resolve) => (open.onsuccess = resolve));
        const all = open.result.transaction("messages").objectStore("messages").getAll();
        await new Promise((resolve) => (all.onsuccess = resolve));
        open.result.close();
        return all.result.some((message) => message.text === "One two three four");
    }"""
    while not chat.page.evaluate(saved):
        pass
    chat.page.reload()
    assert stub.cancelled.wait(60)
    chat.said("One two three four")
    stub.say(" five.")
    chat.button("Go on").click()
    chat.said("One two three four five.")


def test_two_tabs_hold_conversations_of_their_own(chat: ChatPage, other: ChatPage) -> None:
    chat.ask("One?", "First.")
    other.ask("Two?", "Second.")
    for tab in (chat, other):
        expect(tab.page.locator("#conversations .open")).to_have_text(["Two?", "One?"])
    expect(chat.answers).to_have_text("First.")
    expect(other.answers).to_have_text("Second.")


def test_two_tabs_in_one_conversation_lose_nothing(chat: ChatPage, other: ChatPage) -> None:
    """Both ask at the same time: two branches, and either tab can see both."""
    chat.ask("One?", "First.")
    other.page.locator("#conversations .open").click()
    expect(other.answers).to_have_text("First.")
    chat.stub.say("Mine.", hold_at=0)
    chat.send("Left?")
    expect(other.questions).to_have_text(["One?", "Left?"])
    other.page.get_by_role("button", name="Edit and ask again").last.click()
    other.stub.say("Yours.")
    other.page.get_by_role("textbox", name="Your question").fill("Right?")
    other.page.keyboard.press("Control+Enter")
    other.said("Yours.")
    chat.stub.resume()
    chat.said("Mine.")
    for tab, before, after in ((chat, "Mine.", "Yours."), (other, "Yours.", "Mine.")):
        tab.said(before)
        tab.page.locator(".versions button:enabled").click()
        tab.said(after)
    messages = json.loads(exported(chat))["conversations"][0]["messages"]
    assert {message["text"] for message in messages} == {
        *("One?", "First.", "Left?", "Mine.", "Right?", "Yours.")
    }


def test_what_one_tab_renames_or_deletes_the_other_shows(chat: ChatPage, other: ChatPage) -> None:
    chat.ask("One?", "First.")
    other.page.locator("#conversations .open").click()
    expect(other.answers).to_have_text("First.")
    chat.button("Rename One?").click()
    chat.page.get_by_role("textbox", name="Title").fill("The first")
    chat.page.keyboard.press("Enter")
    expect(other.page.locator("#conversations .open")).to_have_text("The first")
    expect(other.page.locator("h1")).to_have_text("The first")
    chat.button("Delete The first").click()
    expect(other.page.locator("#conversations .open")).to_have_count(0)
    expect(other.answers).to_have_count(0)
    chat.button("Undo").click()
    expect(chat.answers).to_have_text("First.")
    expect(other.page.locator("#conversations .open")).to_have_text("The first")


def test_an_answer_goes_on_while_another_conversation_is_read(chat: ChatPage, stub: Stub) -> None:
    chat.ask("One?", "First.")
    chat.button("New conversation").click()
    stub.say("Two three four five.", hold_at=1)
    chat.send("Two?")
    chat.said("Two")
    chat.page.get_by_role("button", name="One?", exact=True).click()
    expect(chat.answers).to_have_text("First.")
    chat.ask("Three?", "Third.")
    stub.resume()
    chat.page.get_by_role("button", name="Two?", exact=True).click()
    chat.said("Two three four five.")


def test_an_export_is_read_back_where_nothing_is_left(chat: ChatPage) -> None:
    chat.ask("One?", "A *first* answer.")
    chat.button("Answer again").click()
    expect(chat.page.locator(".versions")).to_contain_text("2 of 2")
    expect(chat.page.locator(".speed")).to_have_count(1)
    text = exported(chat)
    chat.button("Delete One?").click()
    expect(chat.page.locator("#conversations .open")).to_have_count(0)
    read_conversations(chat, text)
    expect(chat.questions).to_have_text("One?")
    expect(chat.page.locator(".versions")).to_contain_text("2 of 2")
    read_conversations(chat, text)
    expect(chat.page.locator("#conversations .open")).to_have_count(1)
    assert json.loads(exported(chat)) == json.loads(text)


def test_what_the_terminal_saved_is_read(chat: ChatPage) -> None:
    turns = [("system", "Be brief."), ("user", "One?"), ("assistant", "First."), ("user", "Two?")]
    messages = [{"role": role, "content": content} for role, content in turns]
    read_conversations(chat, json.dumps({"format": "spec-cpu conversation", "messages": messages}))
    expect(chat.questions).to_have_text(["One?", "Two?"])
    expect(chat.answers).to_have_text(["First."])
    expect(chat.page.locator("#system")).to_have_value("Be brief.")


@pytest.mark.parametrize(
    "text",
    [
        b"no JSON",
        b"\xff\xfe\x00",
        "[]",
        "null",
        '{"format": "spec-cpu page", "version": 1, "conversations": [{}]}',
        '{"format": "spec-cpu page", "version": 1, "conversations": [{"conversation": {"id": "a"},'
        ' "messages": [{"id": 1}]}]}',
        '{"messages": [{"role": "user"}]}',
    ],
)
def test_a_file_of_something_else_changes_nothing(chat: ChatPage, text: str | bytes) -> None:
    chat.ask("One?", "First.")
    read_conversations(chat, text)
    expect(chat.page.locator(".toast")).to_contain_text("saved.json: This file")
    assert chat.titles == ["One?"]
    expect(chat.answers).to_have_text("First.")


def test_a_server_that_goes_amid_an_answer_and_comes_back(chat: ChatPage, stub: Stub) -> None:
    stub.say("One two three four five.", hold_at=2)
    chat.send("Count.")
    chat.said("One two three four")
    stub.stop()
    expect(chat.page.locator("#gone")).to_be_visible()
    chat.said("One two three four")
    stub.start()
    expect(chat.page.locator("#gone")).to_be_hidden()
    stub.say(" five.")
    chat.button("Go on").click()
    chat.said("One two three four five.")


def test_a_question_to_a_server_that_is_gone_is_kept(chat: ChatPage, stub: Stub) -> None:
    stub.stop()
    chat.send("Are you there?")
    expect(chat.page.locator("#gone")).to_be_visible()
    expect(chat.questions).to_have_text("Are you there?")
    stub.start()
    chat.button("Look now").click()
    expect(chat.page.locator("#gone")).to_be_hidden()
    stub.say("Yes.")
    chat.button("Try again").click()
    chat.said("Yes.")
    assert len(stub.requests) == 1


def test_an_answer_that_breaks_off_is_no_whole_one(chat: ChatPage, stub: Stub) -> None:
    stub.say("One two three four five.", hold_at=1, break_at=1)
    chat.send("Count.")
    chat.said("One")
    stub.resume()
    expect(chat.button("Go on")).to_be_visible()
