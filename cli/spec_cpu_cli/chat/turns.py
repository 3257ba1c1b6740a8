"""Commands that change what was said, or have it said anew."""

from __future__ import annotations

import secrets

from spec_cpu.conversations.edit import drop_oldest, questions, set_system_prompt, take_back
from spec_cpu.errors import UsageError
from spec_cpu_cli.chat.notes import beginning, note
from spec_cpu_cli.chat.state import Chat


def retry(chat: Chat, _argument: str) -> None:
    """Answer the last message again, with other random draws."""
    if chat.unsent is not None:
        chat.send(chat.unsent)
        return
    messages = chat.session.messages
    if not questions(messages):
        raise UsageError("nothing was asked yet")
    before = [turn.copy() for turn in messages]
    seed = None if chat.sampling.seed is None else secrets.randbits(32)
    send_instead(chat, None, seed=seed)
    if messages == before and chat.sampling.temp == 0:
        note("the same answer, as always at temperature 0: /set temp 0.8 brings others")


def send_instead(chat: Chat, text: str | None, *, seed: int | None = None) -> None:
    """Have `text` answered in place of the last message; None: that message itself.

    Where there is no answer, what was said before stays.
    """
    messages = chat.session.messages
    taken, finish = take_back(messages), chat.finish
    if not chat.send(taken[0]["content"] if text is None else text, seed=seed):
        chat.unsent, chat.finish = None, finish
        messages += taken


def go_on(chat: Chat, _argument: str) -> None:
    """Go on with an answer that was cut."""
    if chat.finish == "stop":
        raise UsageError("the last answer came to its end by itself: nothing was cut")
    chat.go_on()


def undo(chat: Chat, _argument: str) -> None:
    """Take the last message and its answer back, or the one that could not be answered."""
    if chat.unsent is not None:
        note(f"taken back: {beginning(chat.unsent)}")
        chat.unsent = None
        return
    taken = take_back(chat.session.messages)
    if not taken:
        raise UsageError("nothing was asked yet")
    chat.finish = None
    chat.keep()
    note(f"taken back: {beginning(taken[0]['content'])}")


def edit(chat: Chat, argument: str) -> None:
    """Have the last message changed: into `argument`, or at the prompt."""
    asked = questions(chat.session.messages)
    if not asked:
        raise UsageError("nothing was asked yet")
    if argument:
        send_instead(chat, argument)
    else:
        chat.editing = asked[-1]


def reset(chat: Chat, _argument: str) -> None:
    """Begin a new conversation, with the same system prompt."""
    session = chat.session
    session.reset()
    set_system_prompt(session.messages, chat.answer.system)
    chat.attachments.clear()
    chat.unsent = chat.finish = chat.file = chat.earlier = None
    if chat.kept:
        chat.kept.begin_anew()
    note("a new conversation")


def drop(chat: Chat, argument: str) -> None:
    """Forget the oldest questions and answers."""
    if argument and not (argument.isascii() and argument.isdigit() and int(argument)):
        raise UsageError(f"/drop takes how many questions to forget, such as 2, not {argument!a}")
    messages, n = chat.session.messages, int(argument or 1)
    older = len(questions(messages)) - 1
    if older < 1:
        raise UsageError("there is nothing older than the last question and its answer")
    if n > older:
        raise UsageError(
            f"there {'is' if older == 1 else 'are'} {older} older than the last question and its "
            f"answer, not {n}: /drop {older}"
        )
    dropped = drop_oldest(messages, n)
    chat.keep()
    what = "question and its answer" if dropped == 1 else f"{dropped} questions and their answers"
    note(f"forgotten: the oldest {what}")
