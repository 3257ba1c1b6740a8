"""What is shown of an answer: Markdown, nothing that runs, and where each token came from."""

from __future__ import annotations

import json
import re

import pytest
from chat_page import ChatPage
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Locator, Page, expect
from stub_server import Stub

from spec_cpu.serve.http.app import POLICY

HOSTILE = [
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<b onclick=alert(1)>bold</b> &lt;i&gt;",
    "[press me](javascript:window.ran=1)",
    "[press me](data:text/html,<script>alert(1)</script>)",
    "[press me](JaVaScRiPt:alert(1))",
    "![picture](https://example.invalid/tracker.png)",
    "```html\n<script>window.ran = 1</script>\n```",
    '```"><script>window.ran = 1</script>\n</code></pre><h1>x</h1>',
    "| <script>1</script> | b |\n|---|---|\n| <iframe src=//a.b> | d |",
    "<javascript:alert(1)> <https://a.b>",
    '[x](https://a.b"onmouseover=alert(1))',
]
MARKDOWN = st.text(st.sampled_from(list("ab1 \n\n*_`~#>-+|[]()!\\.:<")), max_size=60)
LEAVES = """(sources) => import("/markdown.js").then(({parse}) => sources.map((source) => {
    const leaves = (node) => node.children.length ? node.children.flatMap(leaves) : [node];
    return parse(source).flatMap(leaves).map(({start, end}) => [start, end]);
}))"""


SHOW = """(text) => import("/markdown_view.js").then(({MarkdownView}) => {
    document.body.replaceChildren(document.createElement("div"));
    new MarkdownView(document.body.firstChild).show(text, null);
})"""


@pytest.fixture(scope="module")
def paper(tab: ChatPage) -> Page:
    """A page on which Markdown is shown, without a conversation."""
    tab.forget()
    tab.open()
    return tab.page


def assert_harmless(inside: Locator) -> None:
    """Nothing of what is shown runs, is fetched, or leads to what runs."""
    expect(inside.locator("script, img, iframe, b, i, h1, [onclick], [onmouseover]")).to_have_count(
        0
    )
    for link in inside.locator("a").all():
        assert (link.get_attribute("href") or "").startswith("https://")
        assert "noopener" in (link.get_attribute("rel") or "")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(paper: Page, text: str) -> None:
    paper.evaluate(SHOW, text)
    assert_harmless(paper.locator("body"))
    assert paper.evaluate("window.ran") is None


def test_hostile_questions_and_answers_stay_text(chat: ChatPage) -> None:
    fetched: list[str] = []
    chat.page.on("request", lambda request: fetched.append(request.url))
    text = "\n\n".join(HOSTILE)
    chat.page.get_by_role("switch", name="Tint tokens").click()
    chat.ask(text, text)
    assert_harmless(chat.page.locator("#messages"))
    chat.page.get_by_role("switch", name="Tint tokens").click()
    assert_harmless(chat.page.locator("#messages"))
    assert chat.page.evaluate("window.ran") is None
    assert all(url.startswith(chat.stub.url) for url in fetched)
    expect(chat.questions).to_have_text(text)


def test_titles_and_names_of_files_stay_text(chat: ChatPage) -> None:
    file = {"name": "<img src=x>.txt", "mimeType": "text/plain", "buffer": b"<b>x</b>"}
    chat.page.locator("#file-input").set_input_files(file)  # type: ignore[arg-type]
    chat.ask("<img src=x onerror=alert(1)>")
    expect(chat.page.locator("h1")).to_have_text("<img src=x onerror=alert(1)>")
    expect(chat.page.locator("article img, #conversations img")).to_have_count(0)


def test_the_policy_is_not_laxer_than_needed() -> None:
    assert "unsafe" not in POLICY
    assert "*" not in POLICY


@pytest.mark.parametrize(
    ("text", "selector", "shown"),
    [
        ("# Title", "h3", "Title"),
        ("a **bold** word", "strong", "bold"),
        ("an *other* word", "em", "other"),
        ("snake_case_name", "p", "snake_case_name"),
        ("2 * 3 * 4", "p", "2 * 3 * 4"),
        ("no ~~more~~", "del", "more"),
        ("`a*b*c`", "p > code", "a*b*c"),
        ("a \\*star\\*", "p", "a *star*"),
        ("one\ntwo", "p", "one\ntwo"),
        ("- one\n- two", "ul > li", ["one", "two"]),
        ("3. one\n4. two", 'ol[start="3"] > li', ["one", "two"]),
        ("1. one\n   - in\n2. two", "ol > li > ul > li", "in"),
        ("- one\n\n  more\n- two", "ul > li > p", ["one", "more", "two"]),
        ("> said\n> so", "blockquote p", "said\nso"),
        ("a\n\n---\n\nb", "hr", ""),
        ("```py\nx = 1\n\ny = 2\n```", "pre code", "x = 1\n\ny = 2\n"),
        ("```py\nx = 1", "pre code", "x = 1"),
        ("- a\n  ```\n  x\n  ```", "li pre code", "x\n"),
        ("| a | b |\n|---|--:|\n| 1 | `x\\|y` |", "td", ["1", "x\\|y"]),
        ("see https://a.b/c_d_e.", 'a[href="https://a.b/c_d_e"]', "https://a.b/c_d_e"),
        ("[here](https://a.b)", 'a[href="https://a.b"]', "here"),
        ("**a *b* c**", "strong > em", "b"),
        ("**open", "p", "**open"),
    ],
)
def test_markdown_is_shown_as_it_is_meant(
    paper: Page, text: str, selector: str, shown: str | list[str]
) -> None:
    paper.evaluate(SHOW, text)
    wanted = [shown] if isinstance(shown, str) else shown
    assert paper.locator(selector).all_text_contents() == wanted


def test_no_character_is_lost_or_shown_twice(paper: Page) -> None:
    """Leaves of the tree are the whole source, in order, whatever it is."""

    @settings(max_examples=40)
    @given(st.lists(MARKDOWN, min_size=20, max_size=20))
    def check(sources: list[str]) -> None:
        for source, leaves in zip(sources, paper.evaluate(LEAVES, sources), strict=True):
            ends = [0, *(end for _, end in leaves)]
            assert [start for start, _ in leaves] == ends[:-1], source
            assert ends[-1] == len(source), source

    check()


@pytest.mark.parametrize(
    "unit",
    [
        "*",
        "[",
        "`",
        "_a",
        "> ",
        "- ",
        "[](",
        "**a",
        "|",
        "~~",
        "1. ",
        "*a ",
        "[a](b ",
        "- a\n",
        "a|\n",
    ],
)
def test_the_work_grows_with_the_text_and_not_with_its_square(paper: Page, unit: str) -> None:
    work = "(text) => import('/checks/checks.js').then((all) => all.work(text))"
    short, long = (paper.evaluate(work, unit * times) for times in (500, 2000))
    assert 0 < long < 6 * short


def test_what_is_complete_is_not_drawn_again(chat: ChatPage, stub: Stub) -> None:
    stub.say("First part.\n\nSecond part, which is long.", hold_at=3)
    chat.send("Two parts.")
    first = chat.answers.locator("p").first
    expect(chat.answers.locator("p")).to_have_count(2)
    first.evaluate("(p) => { p.mine = true; }")
    stub.resume()
    chat.said("First part.Second part, which is long.")
    assert first.evaluate("(p) => p.mine")


def test_tokens_are_tinted_by_where_they_came_from(chat: ChatPage, stub: Stub) -> None:
    text = "The **sky** is `blue`:\n\n- of air\n- of light\n\n```\na = 1\n```\n"
    chat.ask("Why?", text)
    expect(chat.page.locator("#messages .token")).to_have_count(0)
    switch = chat.page.get_by_role("switch", name="Tint tokens")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    tokens = chat.page.locator("#messages .token")
    assert "".join(tokens.all_text_contents()) == text, "every token is shown, once"
    for kind in ("plain", "accepted.from-n-gram", "correction", "bonus", "accepted.from-head"):
        assert chat.page.locator(f"#messages .token.{kind}").count(), kind
    chat.page.reload()
    chat.answers.last.locator(".token").first.wait_for()
    assert "".join(tokens.all_text_contents()) == text, "kept with the conversation"
    switch.click()
    expect(tokens).to_have_count(0)


def test_tints_grow_with_the_answer(chat: ChatPage, stub: Stub) -> None:
    chat.page.get_by_role("switch", name="Tint tokens").click()
    stub.say("One two three four five six seven.", hold_at=2)
    chat.send("Count.")
    tokens = chat.page.locator("#messages .token")
    chat.said("One two three four")
    assert "".join(tokens.all_text_contents()) == "One two three four"
    stub.resume()
    chat.said("One two three four five six seven.")
    assert "".join(tokens.all_text_contents()) == "One two three four five six seven."


def test_alternatives_are_shown_under_the_pointer_and_at_the_keyboard(chat: ChatPage) -> None:
    chat.ask("Count.", "One two three four five six seven.")
    chat.page.get_by_role("switch", name="Tint tokens").click()
    tip = chat.page.get_by_role("tooltip")
    chat.page.locator('#messages [data-token="3"]').hover()
    expect(tip).to_contain_text("corrected")
    expect(tip).to_contain_text("␣other")
    expect(tip).to_contain_text("31 %")
    chat.page.mouse.move(5, 5)
    expect(tip).to_be_hidden()
    chat.page.locator('#messages [tabindex="0"].token').focus()
    expect(tip).to_contain_text("plain")
    chat.page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("by n-gram")
    expect(chat.page.locator(".token:focus")).to_have_attribute("aria-describedby", "tip")
    chat.page.keyboard.press("End")
    expect(chat.page.locator(".token:focus")).to_have_text(".")
    chat.page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_the_panel_says_how_it_goes(chat: ChatPage, stub: Stub) -> None:
    stub.shares = [{"id": 7, "rows": 5, "drafted": 4}, {"id": 9, "rows": 3, "drafted": 2}]
    stub.say("One two three four five six seven.", hold_at=2)
    chat.send("Count.")
    panel = chat.page.get_by_role("complementary", name="How it is going")
    expect(panel.locator("#per-step")).to_have_text("2.00")
    expect(panel.locator("#speedup")).to_have_text(re.compile(r"^1\.\d\d"))
    expect(panel.locator("#share-list")).to_contain_text("This conversation: 5 of 8, 4 drafted")
    expect(panel.locator("#share-list")).to_contain_text("Somebody else: 3 of 8, 2 drafted")
    words = "The latest pass was over 8 tokens and cost 1.37 plain steps."
    expect(panel.get_by_role("img")).to_have_attribute("aria-label", words)
    expect(panel.locator("#sources")).to_contain_text("n-gram73 %301 of 412 stayed")
    stub.resume()
    expect(panel.locator("#speedup")).to_contain_text("2.07")
    expect(panel.locator("#per-step")).to_have_text("2.40")


def test_code_and_answers_are_copied(chat: ChatPage) -> None:
    chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.ask("Code.", "So:\n\n```py\nx = 1\n```")
    chat.button("Copy this code").click()
    assert chat.page.evaluate("navigator.clipboard.readText()") == "x = 1\n"
    chat.page.locator(".assistant").get_by_role("button", name="Copy this text").click()
    assert chat.page.evaluate("navigator.clipboard.readText()") == "So:\n\n```py\nx = 1\n```"


def test_nothing_is_kept_but_in_the_browser(chat: ChatPage, stub: Stub) -> None:
    chat.ask("A secret?", "Yes.")
    assert "secret" not in json.dumps(chat.page.evaluate("({...localStorage})"))
    assert "secret" not in chat.page.url
