"""Sessions: conversations, how answers end, what they count; the law of seeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

import spec_cpu
from spec_cpu import SamplingParams, Session, Stats, defaults
from spec_cpu.errors import ContextError, UsageError, VocabularyMismatchError

GREEDY = SamplingParams(temperature=0)


@pytest.fixture
def session(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, seed=1, ctx=512, k=4) as session:
        yield session


def answer(session: Session, prompt: str = "hello", **how: Any) -> str:
    return "".join(step.text for step in session.generate(prompt, **{"max_tokens": 40, **how}))


@pytest.mark.slow
def test_the_public_api_in_four_lines(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(target=tiny_target, draft=tiny_draft) as s:
        for step in s.generate("Why?", max_tokens=16):
            assert step.tokens
        assert s.stats.tokens > 0


def test_steps_say_what_became_of_each_token(session: Session) -> None:
    steps = list(session.generate("hello", max_tokens=60, ignore_eos=True))
    for step in steps[:-1]:
        cycle = step.cycle
        assert step.tokens == cycle.tokens
        assert len(cycle.tokens) == cycle.accepted + 1
        assert len(cycle.overlaps) == cycle.tried <= cycle.drafted
        assert cycle.seconds.draft + cycle.seconds.target + cycle.seconds.sample <= (
            cycle.seconds.total + 1e-6
        )
    origins = {piece.origin for step in steps for piece in step.pieces}
    assert origins >= {"accepted", "correction"}
    assert sum(len(step.tokens) for step in steps) == 60 == session.stats.tokens


def test_k_can_be_pinned_for_an_answer(session: Session) -> None:
    for k in (0, 2, 7):
        answer(session, k=k, ignore_eos=True)
        assert session.stats.k == k
        assert max(session.stats.k_used) == k
        assert sum(session.stats.k_used.values()) == session.stats.cycles
    answer(session, ignore_eos=True)
    assert session.stats.k == 4, "the session's own again"


def test_a_plain_answer_leaves_the_draft_alone(session: Session) -> None:
    (drafter,) = session.sources
    answer(session, "hello", k=0)
    assert session.stats.drafted == 0
    assert drafter.sequence is not None
    assert drafter.sequence.tokens == []


def test_a_k_that_cannot_be_pinned(session: Session, tiny_target: Path) -> None:
    for k in (-1, defaults.MAX_DRAFT_TOKENS + 1):
        with pytest.raises(UsageError, match="`k` must be from 0"):
            answer(session, k=k)
    with (
        spec_cpu.load(tiny_target, "none", threads=1) as plain,
        pytest.raises(UsageError, match="no draft"),
    ):
        answer(plain, k=2)


def test_a_rendered_prompt_is_what_is_read(session: Session) -> None:
    rendered = session.render("hello")
    assert "hello" in rendered.text
    answer(session, "hello")
    assert session.stats.prompt_tokens == len(rendered.tokens)


def test_stats_add_up(session: Session) -> None:
    steps = list(session.generate("hello", max_tokens=100, ignore_eos=True))
    stats = session.stats
    assert stats.cycles == len(steps)
    assert stats.drafted == sum(step.cycle.drafted for step in steps)
    assert stats.accepted == sum(step.cycle.accepted for step in steps)
    assert stats.accepted_by_position[0] == sum(step.cycle.accepted > 0 for step in steps)
    assert stats.alpha == pytest.approx(stats.accepted / sum(stats.tried_by_position))
    assert stats.alpha_exact is not None
    assert 0 < stats.alpha_exact <= 1
    assert stats.tokens_per_cycle == pytest.approx(100 / len(steps))


def test_observed_and_exact_alpha_estimate_the_same(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, seed=2, rule="token", k=2) as session:
        for i in range(6):
            answer(session, f"{i}", raw=True, max_tokens=400, ignore_eos=True)
        total = session.total
    assert sum(total.tried_by_position) > 1000
    assert total.alpha == pytest.approx(total.alpha_exact, abs=0.05)


@pytest.mark.parametrize("rule", ["block", "token"])
def test_the_same_seed_gives_the_same_text(tiny_target: Path, tiny_draft: Path, rule: str) -> None:
    def write(seed: int) -> str:
        with spec_cpu.load(
            tiny_target, tiny_draft, threads=1, seed=seed, rule=rule, k=4
        ) as session:
            return answer(session, ignore_eos=True)

    assert write(1) == write(1)
    assert write(1) != write(2)


def test_greedy_text_is_that_of_plain_decoding(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = answer(plain, ignore_eos=True)
        assert plain.stats.alpha is None
        assert plain.stats.speedup == 1
        assert plain.stats.tokens_per_cycle == 1
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, sampling=GREEDY, k=4) as session:
        assert answer(session, ignore_eos=True) == expected
        assert session.stats.accepted


def test_k_zero_is_plain_decoding(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, k=0) as session:
        answer(session)
        assert session.stats.drafted == 0


def test_a_conversation_grows_and_is_reset(session: Session) -> None:
    answer(session, "first question")
    answer(session, "second question")
    assert [turn["role"] for turn in session.messages] == ["user", "assistant"] * 2
    session.reset()
    assert session.messages == []


@pytest.mark.slow
def test_the_next_turn_reuses_the_cache(default_path: Path, q4_0_path: Path) -> None:
    with spec_cpu.load(default_path, q4_0_path, sampling=GREEDY) as session:
        answer(session, "Name a colour.", max_tokens=16)
        known = session.stats.prompt_tokens + session.stats.tokens
        assert session.stats.reused_tokens == 0
        answer(session, "Another one?", max_tokens=4)
        assert session.stats.reused_tokens >= known - 2
        assert session.stats.prompt_tokens - session.stats.reused_tokens < 30


def test_a_system_turn_survives_a_reset(tiny_target: Path) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, system="Be brief.") as session:
        answer(session)
        session.reset()
        assert [turn["content"] for turn in session.messages] == ["Be brief."]


def test_a_second_turn_is_as_in_a_fresh_session(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, sampling=GREEDY, k=4) as session:
        first = answer(session, "one")
        second = answer(session, "two")
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as fresh:
        fresh.messages += [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": first},
        ]
        assert answer(fresh, "two") == second


def test_an_answer_that_is_broken_off_is_kept(session: Session) -> None:
    steps = session.generate("hello", max_tokens=100, ignore_eos=True)
    text = next(steps).text + next(steps).text
    steps.close()
    assert session.finish == "interrupted"
    assert session.messages[-1] == {"role": "assistant", "content": text}
    answer(session, "go on")
    assert session.finish in ("length", "stop")


@pytest.mark.parametrize("held", [True, False], ids=["the generator lives on", "or not"])
def test_an_exception_of_the_reader_loses_nothing(session: Session, held: bool) -> None:
    """As Ctrl-C: what was said stays, also where a traceback keeps the generator alive."""
    heard: list[str] = []
    steps = session.generate("one", max_tokens=50, ignore_eos=True, stop="no such text")

    def read() -> None:
        for step in steps if held else iter(steps):
            heard.append(step.text)
            if len(heard) == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    assert session.messages[-1] == {"role": "assistant", "content": "".join(heard)}
    if not held:
        steps.close()
    answer(session, "two")
    asked, said = session.messages[:2]
    assert asked == {"role": "user", "content": "one"}
    assert said["content"].startswith("".join(heard))
    assert len(session.messages) == 4


def test_an_exception_thrown_into_an_answer_keeps_it(session: Session) -> None:
    steps = session.generate("one", max_tokens=50, ignore_eos=True)
    text = next(steps).text
    with pytest.raises(ZeroDivisionError):
        steps.throw(ZeroDivisionError())
    assert [turn["content"] for turn in session.messages] == ["one", text + session.held_back]


def test_a_raw_answer_is_no_part_of_the_conversation(session: Session) -> None:
    next(session.generate("one", raw=True, ignore_eos=True))
    answer(session, "two", raw=True)
    assert session.messages == []


def test_a_prompt_that_is_broken_off_leaves_the_session_usable(session: Session) -> None:
    def interrupt(*_report: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer(session, "hello", progress=interrupt)
    assert session.finish == "interrupted"
    assert session.messages == []
    assert answer(session, "hello")


def test_how_an_answer_ends(session: Session, tiny_target: Path) -> None:
    answer(session, max_tokens=7, ignore_eos=True)
    assert session.finish == "length"
    assert session.stats.tokens == 7
    answer(session, max_tokens=5000, ignore_eos=True)
    assert session.finish == "context"
    assert session.stats.prompt_tokens + session.stats.tokens == session.n_ctx


def test_the_end_token_ends_an_answer(tmp_path: Path) -> None:
    path = tiny.write_llama(tmp_path / "flat.gguf", n_vocab=32, scale=0.3)
    flat = SamplingParams(top_k=0, top_p=1, min_p=0)
    with spec_cpu.load(path, path, threads=1, seed=5, sampling=flat, k=3) as session:
        for seed in range(5):
            steps = list(session.generate("abc", max_tokens=200, raw=True, seed=seed))
            if session.finish == "stop":
                break
        assert session.finish == "stop"
        assert steps[-1].tokens[-1] in session.target.vocab.end_tokens
        assert all(
            token not in session.target.vocab.end_tokens
            for step in steps
            for token in step.tokens[: -1 if step is steps[-1] else None]
        )
        list(session.generate("abc", max_tokens=200, raw=True, ignore_eos=True))
        assert session.finish in ("length", "context")


def test_a_stop_string_ends_an_answer_and_is_not_part_of_it(
    tiny_target: Path, tiny_draft: Path
) -> None:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, sampling=GREEDY, k=4) as session:
        whole = answer(session, raw=True, ignore_eos=True)
        stop = whole[20:24]
        cut = answer(session, raw=True, ignore_eos=True, stop=[stop])
        assert cut == whole[: whole.index(stop)]
        assert session.finish == "stop"


@pytest.fixture(scope="module")
def talkative(models: Path) -> Path:
    """A model of few tokens that says its control tokens often."""
    tokens = [*tiny.vocabulary(30), "<x>", "<y>"]
    return tiny.write_llama(models / "talkative.gguf", tokens=tokens, n_ctx=512, scale=0.1)


FLAT = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)


@pytest.mark.parametrize("ignore_eos", [True, False])
@pytest.mark.parametrize("stop", ["<x>", "</s>", "<s>"])
def test_a_stop_may_be_a_control_token(talkative: Path, stop: str, ignore_eos: bool) -> None:
    """Rule: an answer ends at it, also where it would be forbidden; at no other end token then."""
    how = {"raw": True, "max_tokens": 400, "ignore_eos": ignore_eos, "stop": [stop]}
    with spec_cpu.load(talkative, talkative, threads=1, seed=3, k=3, sampling=FLAT) as session:
        vocab = session.target.vocab
        wanted = vocab.controls[stop]
        ends = {wanted} if ignore_eos else {wanted, *vocab.end_tokens}
        for seed in range(8):
            steps = list(session.generate("abc", seed=seed, **how))  # type: ignore[arg-type]
            tokens = [token for step in steps for token in step.tokens]
            assert session.finish == "stop"
            assert tokens[-1] in ends
            assert ends.isdisjoint(tokens[:-1])
            assert "<" not in "".join(step.text for step in steps) + session.held_back


def test_ignoring_end_tokens_none_comes(talkative: Path) -> None:
    with spec_cpu.load(talkative, talkative, threads=1, seed=3, k=3, sampling=FLAT) as session:
        steps = list(session.generate("abc", raw=True, max_tokens=300, ignore_eos=True, stop=["~"]))
        tokens = {token for step in steps for token in step.tokens}
        assert session.finish == "length"
        assert tokens.isdisjoint(session.target.vocab.end_tokens)


def test_a_stop_that_a_bias_forbids_is_told(talkative: Path) -> None:
    sampling = SamplingParams(logit_bias={30: float("-inf")})
    with spec_cpu.load(talkative, "none", threads=1, sampling=sampling) as session:
        answer(session, "abc", raw=True, stop=["<y>"])
        assert session.notices == []
        answer(session, "abc", raw=True, stop=["<x>"])
        assert session.notices == ["no answer can end at <x>: a bias of -inf forbids token 30"]


def test_without_a_template_there_is_a_notice_once(session: Session) -> None:
    answer(session)
    answer(session)
    assert [notice for notice in session.notices if "template" in notice] == session.notices[-1:]


def test_an_answer_that_another_one_overtook_does_not_go_on(session: Session) -> None:
    first = session.generate("one", max_tokens=50, ignore_eos=True)
    next(first)
    second = answer(session, "two")
    with pytest.raises(UsageError, match="broken off"):
        next(first)
    asked, said, *rest = [turn["content"] for turn in session.messages]
    assert asked == "one"
    assert said
    assert rest == ["two", second]


def test_an_answer_ends_with_its_session(tiny_target: Path, tiny_draft: Path) -> None:
    with spec_cpu.load(tiny_target, tiny_draft, threads=1, k=2) as session:
        steps = session.generate("one", max_tokens=50, ignore_eos=True)
        next(steps)
    with pytest.raises(UsageError, match="closed"):
        next(steps)


@pytest.mark.parametrize("k", [1, 40, 64])
def test_a_long_draft_from_a_small_window(tiny_target: Path, tiny_draft: Path, k: int) -> None:
    with spec_cpu.load(tiny_target, "none", threads=1, sampling=GREEDY) as plain:
        expected = answer(plain, raw=True, max_tokens=150, ignore_eos=True)
    options: dict[str, Any] = {"threads": 1, "sampling": GREEDY, "k": k, "draft_ctx": 32}
    options["shape"] = "chain"  # a tree leaves the cache in another order: a near-tie may turn
    with spec_cpu.load(tiny_target, tiny_draft, **options) as session:
        assert answer(session, raw=True, max_tokens=150, ignore_eos=True) == expected
        assert session.stats.drafted > 0


def test_a_bad_prompt_changes_nothing(session: Session) -> None:
    for prompt in ("", "  \n"):
        with pytest.raises(UsageError, match="empty"):
            answer(session, prompt)
    with pytest.raises(ContextError, match=r"prompt has [\d,]+ tokens.* context holds 512"):
        answer(session, "long " * 600)
    with pytest.raises(UsageError, match="`max_tokens`"):
        answer(session, max_tokens=0)
    assert session.messages == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": -1}, "`k` must be from 0 to 64"),
        ({"k": 65}, "`k` must be from 0 to 64"),
        ({"rule": "likely"}, "`rule` must be one of block, token"),
        ({"seed": -1}, "seed"),
        ({"draft_ctx": 8}, "`draft_ctx` must be at least"),
        ({"ctx": -1}, "`ctx` must be from 1 to"),
        ({"threads": 0}, "`threads` must be from 1 to 512"),
    ],
)
def test_options_out_of_range(
    tiny_target: Path, tiny_draft: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        spec_cpu.load(tiny_target, tiny_draft, **options)


def test_a_draft_of_another_vocabulary_is_refused(tiny_target: Path, tmp_path: Path) -> None:
    other = tiny.write_llama(tmp_path / "o.gguf", tokens=[*tiny.vocabulary(319), "other"])
    with pytest.raises(VocabularyMismatchError, match="draft of the target's own family"):
        spec_cpu.load(tiny_target, other)


def test_a_recurrent_target_decodes_plainly_with_a_notice(tmp_path: Path) -> None:
    path = tiny.write_mamba(tmp_path / "m.gguf", n_vocab=32)
    with spec_cpu.load(path, path, threads=1, sampling=GREEDY) as session:
        assert session.sources == []
        assert "recurrent" in session.notices[0]
        first = answer(session, "abc", raw=True, ignore_eos=True)
        assert answer(session, "abc", raw=True, ignore_eos=True) == first


def test_a_recurrent_draft_is_left_out_with_a_notice(tmp_path: Path) -> None:
    target = tiny.write_llama(tmp_path / "t.gguf", n_vocab=32)
    draft = tiny.write_mamba(tmp_path / "m.gguf", n_vocab=32)
    with spec_cpu.load(target, draft, threads=1, seed=1) as session:
        assert session.sources == []
        assert "cannot draft" in session.notices[0]
        assert answer(session, "abc", raw=True)


def test_a_context_beyond_the_training_is_allowed_with_a_notice(tmp_path: Path) -> None:
    path = tiny.write_llama(tmp_path / "t.gguf", n_vocab=32, context_length=64)
    with spec_cpu.load(path, "none", ctx=128, threads=1) as session:
        assert "trained on texts of 64 tokens" in session.notices[0]
        assert session.n_ctx == 128
    with spec_cpu.load(path, "none", threads=1) as session:
        assert session.n_ctx == 64


def test_a_failed_load_frees_everything(tiny_target: Path, tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(UsageError, match="no such file"):
            spec_cpu.load(tiny_target, tmp_path / "none.gguf")


def test_closing_twice_is_harmless(tiny_target: Path, tiny_draft: Path) -> None:
    session = spec_cpu.load(tiny_target, tiny_draft)
    session.close()
    session.close()


def test_an_answer_stopped_before_its_first_cycle_has_no_numbers() -> None:
    stats = Stats()
    for value in (stats.speedup, stats.speedup_theory, stats.speedup_textbook, stats.alpha):
        assert value is None
