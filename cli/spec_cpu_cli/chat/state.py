"""A conversation at the terminal: its session, its settings, what comes with the next message."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from spec_cpu.conversations.edit import questions, system_prompt
from spec_cpu.errors import ContextError, RemoteError, SpecCpuError
from spec_cpu_cli import options as opt
from spec_cpu_cli.answer import say, stream_answer
from spec_cpu_cli.chat.notes import beginning, complain, dim_note, note
from spec_cpu_cli.chat.shown import speed_line
from spec_cpu_cli.keeping import Kept, record, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from spec_cpu.answer.steps import Finish
    from spec_cpu.conversations.record import Conversation
    from spec_cpu.llama.chat import Message
    from spec_cpu.pairing import ModelChoice
    from spec_cpu.session import Session


@dataclass(slots=True)
class Attachment:
    """A file whose text goes with the next message."""

    name: str
    text: str


@dataclass(slots=True, kw_only=True)
class Chat:
    """All that commands act upon.

    Attributes:
        answer, models, drafting, sampling: the options, as commands left them.
        markdown: show answers as formatted text.
        kept: where the conversation is kept, if it is.
        given: settings that the command line gave, which stay when a conversation is loaded.
        plain: draft nothing, whatever was loaded.
        attachments: go with the next message.
        unsent: a message that could not be answered.
        editing: the last message, while a person changes it.
        finish: how the last answer ended; None where that is not known.
        file: where the conversation was saved to or loaded from last.
        saved: the conversation as it was saved or loaded last.
        earlier: the conversation that goes on, as it was loaded.
        left: is it over?
        failed: was there something that could not be done?
    """

    answer: opt.AnswerOptions
    models: opt.ModelOptions
    drafting: opt.DraftOptions
    sampling: opt.SamplingOptions
    markdown: bool
    kept: Kept | None
    given: frozenset[str] = frozenset()
    plain: bool = False
    attachments: list[Attachment] = field(default_factory=list)
    unsent: str | None = None
    editing: str | None = None
    finish: Finish | None = None
    file: Path | None = None
    saved: list[Message] = field(default_factory=list)
    earlier: Conversation | None = None
    left: bool = False
    failed: bool = False
    _session: Session | None = None
    _noticed: int = 0

    @property
    def session(self) -> Session:
        """The session; loaded by `load`."""
        assert self._session is not None
        return self._session

    @property
    def quiet(self) -> bool:
        return self.models.quiet

    def load(self) -> None:
        """Load the models of the options. A conversation that is under way goes on with them."""
        before = self._session
        if before is not None:
            before.close()
            self.tell(before)  # of the memory, which was written now
        choice = self.models.choice
        self._session = opt.open_session(
            choice,
            self.models,
            self.drafting,
            self.sampling.params,
            seed=self.sampling.seed,
            system=self.answer.system,
            memory=self._memory(choice),
        )
        if before is not None:
            self._session.messages[:] = before.messages
        elif self.kept:
            self._resume(self.kept, self._session)
        self._noticed = 0
        self.tell(self._session)

    def complain(self, error: Exception) -> None:
        """Say what could not be done; the conversation goes on."""
        self.failed = True
        complain(error)

    def _memory(self, choice: ModelChoice) -> str:
        """The memory that is asked for, or the default: a seed alone says what is answered."""
        if self.answer.memory is not None:
            return self.answer.memory
        kept = choice.drafts.ngram and self.sampling.seed is None
        return opt.MEMORY_ON if kept else opt.MEMORY_OFF

    def _resume(self, kept: Kept, session: Session) -> None:
        self.finish = kept.resume(session, self.answer.system)
        self.earlier = kept.earlier
        self.set_system(system_prompt(session.messages))
        asked = questions(session.messages)
        if asked and not self.quiet:
            note(f"going on from: {beginning(asked[-1])}")

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self.tell(self._session)

    def tell(self, session: Session) -> None:
        """Show the notices of `session` that are new."""
        if not self.quiet:
            self._noticed = say(session, self._noticed)

    def set_system(self, text: str | None) -> None:
        """Let conversations to come begin with the system prompt `text`, or with none."""
        self.answer = replace(self.answer, system=text)

    def send(self, text: str, *, seed: int | None = None) -> bool:
        """Answer `text`, with what comes with it; is there an answer?

        Args:
            seed: of this answer alone.
        """
        whole = "\n\n".join([text, *(one.text for one in self.attachments)])
        answered = self._reply(whole, seed)
        self.unsent = None if answered else text
        if answered:
            self.attachments.clear()
        return answered

    def go_on(self) -> bool:
        """Go on with the last answer; was there more?"""
        return self._reply(None, None)

    def _reply(self, text: str | None, seed: int | None) -> bool:
        """Answer `text`, or go on with the last answer; was anything said?"""
        session = self._found_again()
        if session is None:
            return False
        try:
            said = self._stream(text, seed)
        except RemoteError as error:
            self.complain(error)
            return self._cut_short()
        except SpecCpuError as error:
            self.complain(error)
            if isinstance(error, ContextError) and not self.quiet:
                note(self._how_to_make_room("/continue") if text is None else self._how_to_fit())
            return False
        finally:
            self.tell(session)
        if said or text is None:
            self.finish = session.finish
        if said:
            self.keep()
        if not self.quiet:
            self._say_how_it_went(said, session.finish)
        return bool(said)

    def _stream(self, text: str | None, seed: int | None) -> str:
        """Show the answer while it comes; what it says."""
        generate = partial(
            self.session.generate,
            text,
            max_tokens=self.answer.max_tokens,
            stop=self.answer.stop,
            ignore_eos=self.answer.ignore_eos,
            sampling=self.sampling.params,
            k=0 if self.plain else None,
            seed=self.sampling.seed if seed is None else seed,
        )
        return stream_answer(
            self.session,
            lambda progress: generate(progress=progress),
            stream=True,
            quiet=self.quiet,
            color=self.answer.color,
            markdown=self.markdown,
            then_prompt=True,
        )

    def _found_again(self) -> Session | None:
        """The session, loaded anew if machines were lost that it needs; None: they still are."""
        remote = self.session.target.remote
        try:
            if remote is not None:
                remote.check()
        except RemoteError:
            try:
                self.load()
            except RemoteError as error:
                self.complain(error)
                return None
        return self.session

    def _cut_short(self) -> bool:
        """A machine was lost within an answer; is there some of it?"""
        if not self.session.stats.tokens:
            return False
        self.finish = self.session.finish
        self.keep()
        if not self.quiet:
            note("/continue goes on, once it is there again")
        return True

    def _say_how_it_went(self, said: str, finish: Finish) -> None:
        if not said:
            stopped = finish == "interrupted"
            note("stopped before the first word" if stopped else "the model says nothing more")
            return
        dim_note(speed_line(self.session.stats))
        if finish == "length":
            note(f"cut at {self.answer.max_tokens:,} tokens (/set max-tokens): /continue goes on")
        elif finish == "context":
            room = self._how_to_make_room("/continue")
            note(f"the context of {self.session.n_ctx:,} tokens is full: {room}")
        elif finish == "interrupted":
            note("stopped: /continue goes on")

    def _how_to_fit(self) -> str:
        """What helps after a message that is too long."""
        ways = ["/undo takes this message back"]
        if self.attachments:
            ways.append("/file -NAME leaves a file out")
        if questions(self.session.messages):
            ways.append("/drop forgets the oldest question and answer")
        return f"{'; '.join(ways)}; /retry tries again"

    def _how_to_make_room(self, then: str) -> str:
        asked = questions(self.session.messages)
        if len(asked) > (then == "/continue"):
            return f"/drop forgets the oldest question and answer, then {then} goes on"
        return "/reset begins anew"

    def keep(self) -> None:
        """Keep the conversation in the log, if it is to be."""
        if self.kept is None:
            return
        try:
            self.kept.keep(self.record())
        except SpecCpuError as error:
            self.complain(error)

    def record(self) -> Conversation:
        """The conversation as it is kept."""
        settings = settings_of(self.answer, self.sampling)
        return record(self.session, self.models.choice, settings, self.finish, self.earlier)
