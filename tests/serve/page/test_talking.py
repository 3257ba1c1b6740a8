"""Talking: what is sent, what comes, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect
from stub_server import Stub


def test_a_question_is_answered_as_it_streams(chat: ChatPage, stub: Stub) -> None:
    stub.say("Blue light scatters more.", hold_at=1)
    chat.send("Why is the sky blue?")
    chat.said("Blue")
    stub.resume()
    chat.said("Blue light scatters more.")
    expect(chat.questions).to_have_text("Why is the sky blue?")
    asked = stub.requests[0]
    assert asked["stream"]
    assert asked["spec_cpu"] == {"tokens": True}
    assert asked["messages"] == [{"role": "user", "content": "Why is the sky blue?"}]


def test_the_conversation_is_sent_as_it_was_held(chat: ChatPage, stub: Stub) -> None:
    chat.page.get_by_text("System prompt", exact=True).click()
    chat.page.get_by_role("textbox", name="System prompt").fill("Be brief.")
    chat.ask("One?", "Two.")
    chat.ask("Three?", "Four.")
    assert [(one["role"], one["content"]) for one in stub.requests[1]["messages"]] == [
        ("system", "Be brief."),
        ("user", "One?"),
        ("assistant", "Two."),
        ("user", "Three?"),
    ]


@pytest.mark.parametrize("how", ["button", "escape"])
def test_an_answer_is_stopped_and_what_was_said_stays(chat: ChatPage, stub: Stub, how: str) -> None:
    stub.say("One two three four five six.", hold_at=1)
    chat.send("Count.")
    chat.said("One")
    if how == "button":
        chat.button("Stop").click()
    else:
        chat.page.keyboard.press("Escape")
    expect(chat.page.locator(".assistant .status")).to_have_text("Stopped.")
    assert stub.cancelled.wait(60)
    chat.said("One")
    chat.page.reload()
    chat.said("One")


def test_a_stopped_answer_goes_on_where_it_was(chat: ChatPage, stub: Stub) -> None:
    stub.say("One two", finish="length")
    chat.send("Count.")
    chat.said("One two")
    stub.say(" three four")
    chat.button("Go on").click()
    chat.said("One two three four")
    assert stub.requests[1]["messages"][-1] == {"role": "assistant", "content": "One two"}
    expect(chat.button("Go on")).to_have_count(0)


def test_a_question_is_edited_and_both_versions_stay(chat: ChatPage, stub: Stub) -> None:
    chat.ask("One?", "First.")
    chat.ask("More?", "Yes.")
    chat.page.locator("article.user").first.get_by_role("button", name="Edit").click()
    field = chat.page.get_by_role("textbox", name="Your question")
    expect(field).to_have_value("One?")
    field.fill("Two?")
    stub.say("Second.")
    field.press("Control+Enter")
    chat.said("Second.")
    assert len(stub.requests[2]["messages"]) == 1
    expect(chat.questions).to_have_text(["Two?"])
    chat.button("Version before").click()
    expect(chat.questions).to_have_text(["One?", "More?"])
    expect(chat.answers).to_have_text(["First.", "Yes."])
    chat.page.reload()
    expect(chat.questions).to_have_text(["One?", "More?"])


def test_an_answer_is_given_again_beside_the_first(chat: ChatPage, stub: Stub) -> None:
    chat.ask("One?", "First.")
    stub.say("Second.")
    chat.button("Answer again").click()
    chat.said("Second.")
    expect(chat.page.locator(".versions")).to_contain_text("2 of 2")
    chat.button("Version before").click()
    chat.said("First.")


def test_settings_are_sent_and_kept(chat: ChatPage, stub: Stub) -> None:
    chat.button("Settings").click()
    dialog = chat.page.get_by_role("dialog")
    expect(dialog.get_by_label("Temperature")).to_have_attribute("placeholder", "0.8")
    wanted = {"Temperature": 0.2, "Top-p": 0.9, "Top-k": 20, "Min-p": 0.1, "Longest answer": 50}
    wanted |= {"Seed": 7, "Frequency penalty": 0.5, "Presence penalty": 0.3, "Repeat penalty": 1.1}
    for label, value in wanted.items():
        dialog.get_by_label(label, exact=True).fill(str(value))
    chat.page.keyboard.press("Escape")
    chat.page.reload()
    chat.ask("One?")
    names = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]
    names += ["frequency_penalty", "presence_penalty", "repeat_penalty"]
    assert [stub.requests[0][name] for name in names] == list(wanted.values())
    chat.button("Settings").click()
    chat.button("As the server has them").click()
    chat.page.keyboard.press("Escape")
    chat.ask("Two?")
    assert not set(names) & set(stub.requests[1])


def test_nonsense_in_a_setting_is_not_sent(chat: ChatPage, stub: Stub) -> None:
    chat.button("Settings").click()
    chat.page.get_by_label("Temperature", exact=True).fill("-3")
    chat.page.keyboard.press("Tab")
    chat.page.keyboard.press("Escape")
    chat.ask("One?")
    assert "temperature" not in stub.requests[0]


def test_a_file_is_read_by_the_model_and_drafted_from(
    chat: ChatPage, stub: Stub, tmp_path: Path
) -> None:
    file = tmp_path / "sky.txt"
    file.write_text("Rayleigh scattering.", encoding="utf-8")
    chat.page.locator("#file-input").set_input_files(file)
    expect(chat.page.locator(".chip")).to_contain_text("sky.txt")
    chat.ask("Say it again.")
    (message,) = stub.requests[0]["messages"]
    texts = [part["text"] for part in message["content"]]
    assert "Rayleigh scattering." in texts[0]
    assert texts[-1] == "Say it again."
    reference = {"type": "content", "content": [{"type": "text", "text": "Rayleigh scattering."}]}
    assert stub.requests[0]["prediction"] == reference
    expect(chat.page.locator(".chip")).to_have_count(0)
    chat.ask("And again.")
    assert stub.requests[1]["prediction"] == reference


def test_a_file_is_dropped(chat: ChatPage) -> None:
    chat.page.evaluate(
        """() => {
            const dropped = new DataTransfer();
            dropped.items.add(new File(["a text"], "notes.md"));
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: dropped}));
        }"""
    )
    expect(chat.page.locator(".chip")).to_contain_text("notes.md")
    chat.button("Remove notes.md").click()
    expect(chat.page.locator(".chip")).to_have_count(0)


@pytest.mark.parametrize("content", [b"\x89PNG\xff\xfe", b"a\0b", b"  \n"])
def test_what_is_no_text_is_refused_by_name(chat: ChatPage, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "thing.bin"
    file.write_bytes(content)
    chat.page.locator("#file-input").set_input_files(file)
    expect(chat.page.locator(".toast")).to_contain_text("thing.bin")
    expect(chat.page.locator(".chip")).to_have_count(0)


def test_thoughts_are_apart_from_the_answer(chat: ChatPage, stub: Stub) -> None:
    stub.say("Four.", thoughts="Two and two.")
    chat.send("2 + 2?")
    chat.said("Four.")
    chat.page.get_by_text("Thinking", exact=True).click()
    expect(chat.page.locator(".thinking .markdown")).to_have_text("Two and two.")
    chat.ask("Sure?")
    assert stub.requests[1]["messages"][1]["content"] == "Four."


def test_waiting_and_reading_are_told(chat: ChatPage, stub: Stub) -> None:
    stub.say("Now.", place=3, read=2, hold_at=0)
    chat.send("When?")
    expect(chat.page.locator(".assistant .status")).to_have_text("Reading: 200 of 200 tokens.")
    stub.resume()
    chat.said("Now.")
    expect(chat.page.locator(".assistant .status")).to_have_text("")


@pytest.mark.parametrize(("refuse", "error_at"), [((503, "too many wait"), None), (None, 1)])
def test_an_error_of_the_server_is_shown_and_tried_again(
    chat: ChatPage, stub: Stub, refuse: tuple[int, str] | None, error_at: int | None
) -> None:
    stub.say("One two three.", refuse=refuse, error_at=error_at)
    chat.send("Count.")
    said = refuse[1] if refuse else "the model ran out of memory"
    expect(chat.page.locator(".assistant .status")).to_have_text(said)
    stub.say("Done.")
    chat.button("Try again" if refuse else "Go on").click()
    expect(chat.answers.last).to_contain_text("Done.")
    expect(chat.page.locator(".assistant .status")).to_have_text("")


def test_a_key_is_asked_for_and_kept(fresh: ChatPage, stub: Stub) -> None:
    stub.key = "secret"
    page = fresh.page
    page.goto(stub.url)
    for given in ("wrong", "secret"):
        dialog = page.get_by_role("dialog", name="This server asks for a key")
        dialog.get_by_label("API key").fill(given)
        dialog.get_by_role("button", name="Go on").click()
        if given == "wrong":
            expect(dialog).to_contain_text("does not take")
    expect(page.locator("#model-name")).not_to_be_empty()
    page.reload()
    fresh.ask("One?")
    assert page.get_by_role("dialog").count() == 0
