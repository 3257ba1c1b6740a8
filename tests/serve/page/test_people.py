"""Everybody can use it: with a keyboard, by ear, on a small screen, in light and in dark."""

from __future__ import annotations

from typing import Any

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect
from stub_server import Stub

RICH = """# A title

Some *words* and `code`, see [a page](https://a.b/).

- one
- two

> said

```python
print("a line that is so long that it does not fit into the width of any telephone, ever")
```

| a | b |
|---|---|
| a cell | a_long_name_without_any_place_to_break_it_which_is_longer_than_the_screen |
"""


def check(chat: ChatPage, name: str) -> Any:
    """What a function of `checks.js`, which the stub serves, finds."""
    return chat.page.evaluate(f"() => import('/checks/checks.js').then((all) => all.{name}())")


def show_everything(chat: ChatPage) -> None:
    """A conversation with versions, an error, a file, tints, and a word at the lower edge."""
    chat.stub.shares = [{"id": 9, "rows": 5, "drafted": 4}]
    file = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"text"}
    chat.page.locator("#file-input").set_input_files(file)  # type: ignore[arg-type]
    chat.ask("A question?", RICH)
    chat.stub.say(RICH)
    chat.button("Answer again").click()
    expect(chat.page.locator(".versions")).to_contain_text("2 of 2")
    chat.stub.say("", refuse=(503, "too many requests wait"))
    chat.send("Another?")
    expect(chat.button("Try again")).to_be_visible()
    chat.page.get_by_role("switch", name="Tint tokens").click()


def only_keys(chat: ChatPage, *keys: str) -> None:
    for key in keys:
        chat.page.keyboard.press(key)


def focused(chat: ChatPage) -> str:
    name: str = chat.page.evaluate(
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    )
    return name.strip()


def press_tab_to(chat: ChatPage, name: str, key: str = "Tab") -> None:
    for _ in range(60):
        if focused(chat).startswith(name):
            return
        chat.page.keyboard.press(key)
    raise AssertionError(f"Tab does not lead to {name}")


@pytest.mark.parametrize("tinted", [False, True])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(chat: ChatPage, scheme: Any, tinted: bool) -> None:
    chat.page.emulate_media(color_scheme=scheme)
    show_everything(chat)
    if not tinted:
        chat.page.get_by_role("switch", name="Tint tokens").click()
    else:
        chat.page.locator("#messages .token.accepted").first.hover()
    found = check(chat, "contrast")
    assert found["wrong"] == []
    assert found["looked"] > 50, "this looks at nothing"
    chat.page.locator("#open-settings").click()
    assert check(chat, "contrast")["wrong"] == []


def test_the_theme_that_is_chosen_wins_over_that_of_the_system(chat: ChatPage) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    chat.page.emulate_media(color_scheme="light")
    light = chat.page.evaluate(ground)
    chat.button("Settings").click()
    chat.page.get_by_label("Light or dark").select_option("dark")
    assert chat.page.evaluate(ground) != light
    chat.page.reload()
    assert chat.page.evaluate(ground) != light
    chat.page.emulate_media(color_scheme="dark")
    chat.button("Settings").click()
    chat.page.get_by_label("Light or dark").select_option("light")
    assert chat.page.evaluate(ground) == light


def test_everything_has_a_name_and_a_place(chat: ChatPage) -> None:
    assert check(chat, "names") == []
    show_everything(chat)
    assert check(chat, "names") == []
    for landmark in ("main", "navigation", "complementary"):
        expect(chat.page.get_by_role(landmark)).to_have_count(1)  # type: ignore[arg-type]
    chat.page.locator("#open-settings").click()
    assert check(chat, "names") == []


@pytest.mark.parametrize("width", [360, 320, 768])
def test_it_fits_a_small_screen(chat: ChatPage, width: int) -> None:
    chat.page.set_viewport_size({"width": width, "height": 640})
    show_everything_small(chat)
    assert check(chat, "tooWide") == []
    for side, name in (("sidebar", "Conversations"), ("panel", "How it is going")):
        opened = chat.page.locator(f"#toggle-{side}")
        opened.click()
        expect(chat.page.locator(f"#{side}")).to_be_visible()
        assert check(chat, "tooWide") == []
        assert chat.page.locator(f"#{side}").evaluate("(s) => s.contains(document.activeElement)")
        chat.page.keyboard.press("Escape")
        expect(chat.page.locator(f"#{side}")).to_be_hidden()
        assert focused(chat) == name
    chat.page.locator("#open-settings").click()
    assert check(chat, "tooWide") == []


def show_everything_small(chat: ChatPage) -> None:
    """The same, where the list lies over the conversation."""
    show_everything(chat)
    expect(chat.page.locator("#sidebar")).to_be_hidden()


def test_the_end_stays_in_view(chat: ChatPage, stub: Stub) -> None:
    """While an answer grows, where the window gets smaller, and not where a person scrolled up."""
    stub.say("word " * 400 + "\n\n" + "more " * 400, hold_at=300)
    chat.send("A long one.")
    thread = chat.page.locator("#thread")
    below = "(t) => t.scrollHeight - t.scrollTop - t.clientHeight"
    expect(chat.answers.last).to_contain_text("more")
    assert thread.evaluate(below) < 2
    chat.page.set_viewport_size({"width": 1280, "height": 500})
    expect(chat.page.locator("#to-end")).to_be_hidden()
    assert thread.evaluate(below) < 2
    thread.evaluate("(t) => { t.scrollTop = 0; }")
    expect(chat.page.locator("#to-end")).to_be_visible()
    stub.resume()
    expect(chat.page.locator(".speed")).to_have_count(1)
    assert thread.evaluate("(t) => t.scrollTop") == 0
    chat.button("To the end of the conversation").click()
    assert thread.evaluate(below) < 2


def test_a_side_that_lies_over_the_conversation_is_closed_by_a_touch_beside_it(
    chat: ChatPage,
) -> None:
    chat.page.set_viewport_size({"width": 360, "height": 640})
    chat.page.locator("#toggle-sidebar").click()
    chat.page.mouse.click(350, 300)
    expect(chat.page.locator("#sidebar")).to_be_hidden()


def test_all_of_it_with_the_keyboard_alone(chat: ChatPage, stub: Stub) -> None:
    assert focused(chat) == "Message"
    chat.page.keyboard.type("One?")
    only_keys(chat, "Shift+Enter")
    chat.page.keyboard.type("Or two?")
    stub.say("One two three four.", hold_at=1)
    only_keys(chat, "Enter")
    expect(chat.questions).to_have_text("One?\nOr two?")
    chat.said("One")
    only_keys(chat, "Escape")
    expect(chat.page.locator(".assistant .status")).to_have_text("Stopped.")
    stub.say(" two.")
    press_tab_to(chat, "Go on", "Shift+Tab")
    only_keys(chat, "Enter")
    chat.said("One two.")
    assert chat.page.evaluate("document.activeElement !== document.body"), "the place is kept"
    stub.say("Three.")
    press_tab_to(chat, "Answer again")
    only_keys(chat, "Enter")
    chat.said("Three.")
    press_tab_to(chat, "Version before")
    only_keys(chat, "Enter")
    chat.said("One two.")
    press_tab_to(chat, "Next version")
    chat.field.focus()
    only_keys(chat, "ArrowUp")
    assert focused(chat) == "Your question"
    only_keys(chat, "Escape")
    expect(chat.page.locator(".editor")).to_have_count(0)
    press_tab_to(chat, "Rename", "Shift+Tab")
    only_keys(chat, "Enter")
    chat.page.keyboard.type("A title")
    only_keys(chat, "Enter")
    expect(chat.page.locator("h1")).to_have_text("A title")
    press_tab_to(chat, "Settings")
    only_keys(chat, "Enter")
    expect(chat.page.get_by_role("dialog")).to_be_visible()
    only_keys(chat, "Escape")
    expect(chat.page.get_by_role("dialog")).to_have_count(0)
    assert focused(chat) == "Settings"


def test_enter_can_be_a_new_line(chat: ChatPage, stub: Stub) -> None:
    chat.button("Settings").click()
    chat.page.get_by_label("Enter sends").uncheck()
    only_keys(chat, "Escape")
    chat.field.fill("One")
    chat.field.press("Enter")
    expect(chat.field).to_have_value("One\n")
    chat.field.press("Control+Enter")
    expect(chat.questions).to_have_text("One")


def test_focus_is_seen(chat: ChatPage) -> None:
    chat.ask("One?")
    chat.field.focus()
    for _ in range(25):
        chat.page.keyboard.press("Tab")
        assert check(chat, "focusIsSeen"), focused(chat)


def test_an_answer_is_read_out_once_part_by_part(chat: ChatPage, stub: Stub) -> None:
    stub.say("First part.\n\nSecond part.\n\n- a point", hold_at=3)
    chat.send("Speak.")
    expect(chat.page.locator("#announcer")).to_contain_text("First part.")
    assert "Second" not in chat.heard()
    stub.resume()
    expect(chat.page.locator("#announcer")).to_contain_text("The answer is complete.")
    assert chat.heard() == "First part. Second part. a point The answer is complete."
    log = chat.page.locator("#announcer")
    expect(log).to_have_attribute("aria-live", "polite")
    expect(chat.page.locator("#messages[aria-live], #messages [aria-live]")).to_have_count(0)


def test_motion_is_left_out_where_it_is_not_wanted(chat: ChatPage, stub: Stub) -> None:
    stub.say("One two three.", hold_at=1)
    chat.send("Count.")
    chat.said("One")
    moving = "document.getAnimations().length"
    assert chat.page.evaluate(moving) == 0
    chat.page.emulate_media(reduced_motion="no-preference")
    assert chat.page.evaluate(moving) > 0
    chat.page.emulate_media(reduced_motion="reduce")
    stub.resume()
    chat.said("One two three.")
