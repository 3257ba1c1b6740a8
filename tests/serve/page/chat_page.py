"""The page as a person uses it."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Locator, Page, expect
from stub_server import Stub


@dataclass
class ChatPage:
    """A tab.

    Attributes:
        problems: uncaught errors, and what the policy of the page forbade.
    """

    page: Page
    stub: Stub
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda message: self._heard(message.text))

    def open(self) -> None:
        self.page.goto(self.stub.url)
        expect(self.page.locator("#model-name")).not_to_be_empty()

    def forget(self) -> None:
        """As if this browser had never been here."""
        self.page.goto(f"{self.stub.url}favicon.svg")
        self.page.evaluate("sessionStorage.clear()")
        session = self.page.context.new_cdp_session(self.page)
        where = {"origin": self.stub.url.rstrip("/"), "storageTypes": "all"}
        session.send("Storage.clearDataForOrigin", where)
        session.detach()
        self.page.set_viewport_size({"width": 1280, "height": 800})
        self.problems.clear()

    def _heard(self, text: str) -> None:
        if "Content Security Policy" in text or "Trusted" in text:
            self.problems.append(text)

    @property
    def field(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def answers(self) -> Locator:
        return self.page.locator("article.assistant .text")

    @property
    def questions(self) -> Locator:
        return self.page.locator("article.user .typed")

    @property
    def titles(self) -> list[str]:
        """Of the conversations in the list."""
        return self.page.locator("#conversations .open").all_inner_texts()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def send(self, text: str) -> None:
        self.field.fill(text)
        self.field.press("Control+Enter")

    def ask(self, text: str, answer: str = "Because.") -> None:
        """Send a question, and wait until it is answered."""
        self.stub.say(answer)
        before = self.page.locator(".speed").count()
        self.send(text)
        expect(self.page.locator(".speed")).to_have_count(before + 1)

    def said(self, text: str) -> None:
        """The last answer is this."""
        expect(self.answers.last).to_have_text(text)

    def heard(self) -> str:
        """What a screen reader was given to say, in order."""
        return " ".join(self.page.locator("#announcer p").all_inner_texts())
