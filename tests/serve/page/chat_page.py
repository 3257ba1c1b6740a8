"""The page as a person uses it."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import BrowserContext, Locator, Page, expect
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

    @classmethod
    def open(cls, context: BrowserContext, stub: Stub) -> ChatPage:
        made = cls(context.new_page(), stub)
        made.page.on("pageerror", lambda error: made.problems.append(str(error)))
        made.page.on("console", lambda message: made._heard(message.text))
        made.page.goto(stub.url)
        expect(made.page.locator("#model-name")).not_to_be_empty()
        return made

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
