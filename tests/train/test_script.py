"""Conversations: a template taken apart, turns that alternate, prompts that are used up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from tiny_talk import write_talker

from spec_cpu.errors import ModelError
from spec_cpu.llama.model import Model
from spec_cpu.train.script import ASSISTANT, GIVEN, USER, Speaker, Template

END, OTHER_END = 90, 91
TEMPLATE = Template(
    opening=[1, 2], to_assistant=[END, 3], to_user=[END, 4, 5], ends=frozenset({END, OTHER_END})
)


def speaker(longest: tuple[int, int] = (3, 3), prompts: list[list[int]] | None = None) -> Speaker:
    return Speaker(TEMPLATE, np.random.default_rng(0), longest, prompts or [])


def say(one: Speaker, sampled: list[int]) -> list[tuple[int, int]]:
    return [one.next(token) for token in sampled]


def test_turns_alternate_and_end_where_they_may_not_be_longer() -> None:
    said = say(speaker(), [50] * 14)
    user, given, answer = (50, USER), GIVEN, (50, ASSISTANT)
    assert said == [
        *((1, given), (2, given), user, user),
        *((END, given), (3, given), answer, answer),
        *((END, given), (4, given), (5, given), user, user),
        (END, given),
    ]


@pytest.mark.parametrize("end", [END, OTHER_END])
def test_an_end_that_was_said_is_not_said_again(end: int) -> None:
    said = say(speaker((9, 9)), [0, 0, 50, end, 0, 60])
    assert said[2:] == [(50, USER), (end, USER), (3, GIVEN), (60, ASSISTANT)]


def test_prompts_are_the_users_turns_as_long_as_there_are_any() -> None:
    said = say(speaker(prompts=[[7, 8], [9]]), [50] * 17)
    given, user, answer = GIVEN, USER, (50, ASSISTANT)
    assert said == [
        *((1, given), (2, given), (7, user), (8, user), (END, given), (3, given), answer, answer),
        *((END, given), (4, given), (5, given), (9, user), (END, given), (3, given)),
        *(answer, answer, (END, given)),
    ]


def test_no_prompt_is_used_up_twice() -> None:
    prompts = [[7], [8]]
    one = speaker(prompts=prompts)
    say(one, [50] * 40)
    assert one.prompts == []


def test_a_conversation_of_a_template_is_what_it_renders(talker: Model) -> None:
    template, vocab = Template.of(talker), talker.vocab

    def rendered(tokens: list[int]) -> str:
        return b"".join(map(vocab.text, tokens)).decode().replace("▁", "")

    assert rendered(template.opening) == "<s><|im_start|>user\n"
    assert rendered(template.to_assistant) == "<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(template.to_user) == "<|im_end|>\n<|im_start|>user\n"
    assert vocab.eos in template.ends


def test_a_target_without_a_template_speaks_in_the_plain_one(tmp_path: Path) -> None:
    with Model(write_talker(tmp_path / "plain.gguf", chat_template=None)) as model:
        template = Template.of(model)
        assert template.opening
        assert template.to_assistant
        assert template.to_user
        assert "no chat template" in str(model.chat_template.notice)


def test_a_template_that_hides_answers_is_refused(tmp_path: Path) -> None:
    hiding = tiny.CHATML.replace("{{ message['content'] }}", "")
    with (
        Model(write_talker(tmp_path / "hiding.gguf", chat_template=hiding)) as model,
        pytest.raises(ModelError, match=r"hiding\.gguf leaves turns out"),
    ):
        Template.of(model)
