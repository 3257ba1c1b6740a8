"""A session that drafts with an EAGLE head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_head
from head_engine import GREEDY

import spec_cpu
from spec_cpu.errors import ModelError
from spec_cpu.llama.context import Context, Rows


@pytest.fixture(scope="module")
def readable(tiny_target: Path, models: Path) -> tuple[Path, Path]:
    """A target that reads any text, and a head with some of its tokens."""
    head = models / "readable-eagle.gguf"
    return tiny_target, tiny_head.write_head(head, tiny_target, tokens=range(2, 300))


def test_a_session_drafts_with_it(readable: tuple[Path, Path]) -> None:
    with (
        spec_cpu.load(*readable, k=4, sampling=GREEDY, ctx=512, threads=1) as session,
        spec_cpu.load(readable[0], "none", sampling=GREEDY, ctx=512, threads=1) as plain,
    ):
        assert session.sources
        assert session.sources[0].name == "eagle"
        for turn in ("one, two, three", "and then", "and what"):
            fast = [step.text for step in session.generate(turn, max_tokens=60)]
            slow = [step.text for step in plain.generate(turn, max_tokens=60)]
            assert "".join(fast) == "".join(slow)
            assert session.stats.accepted > 0
        assert all("template" in notice for notice in session.notices)


@pytest.mark.slow
def test_a_session_chooses_k_from_measured_costs(readable: tuple[Path, Path]) -> None:
    with spec_cpu.load(*readable, ctx=512, threads=1, recalibrate=True) as session:
        for _ in session.generate("one, two", max_tokens=80):
            pass
        costs = session.costs
        assert session.sources
    assert costs is not None
    assert costs.draft_step > 0
    assert costs.draft_catch_up > 0
    assert costs.draft_window == 32


def test_another_quantization_of_the_target_is_noticed(
    readable: tuple[Path, Path], tmp_path: Path
) -> None:
    other = tiny.write_llama(
        tmp_path / "other.gguf", n_vocab=320, n_ctx=2048, scale=3, dtype="Q4_0"
    )
    with spec_cpu.load(other, readable[1], ctx=256, threads=1, k=3) as session:
        assert any("fewer of its drafts" in notice for notice in session.notices)
        assert [*session.generate("hi", max_tokens=9)]


def test_another_target_is_refused(readable: tuple[Path, Path], tmp_path: Path) -> None:
    other = tiny.write_llama(tmp_path / "other.gguf", n_vocab=330, n_ctx=2048)
    with pytest.raises(ModelError, match="another vocabulary"):
        spec_cpu.load(other, readable[1])


@pytest.mark.parametrize("n", range(1, 7))
def test_an_interrupted_pass_of_the_head_leaves_the_session_usable(
    readable: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Python hears of Ctrl-C when llama.cpp is done, before anybody noted that it is."""
    decode, passes = Context.decode_embeddings, iter(range(1, 1000))

    def interrupted(self: Context, *args: Any, **named: Any) -> Rows:
        rows = decode(self, *args, **named)
        if next(passes) == n:
            raise KeyboardInterrupt
        return rows

    with (
        spec_cpu.load(*readable, k=4, sampling=GREEDY, ctx=512, threads=1) as session,
        spec_cpu.load(readable[0], "none", sampling=GREEDY, ctx=512, threads=1) as plain,
    ):
        session.answer("one, two, three", max_tokens=10)
        with monkeypatch.context() as patch:
            patch.setattr(Context, "decode_embeddings", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.answer("and then", max_tokens=60)
        plain.messages = [*session.messages]
        assert session.answer("and what", max_tokens=20) == plain.answer("and what", max_tokens=20)


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_the_same_seed_gives_the_same_answer_whatever_text_it_followed(
    readable: tuple[Path, Path], shape: str
) -> None:
    """Of a long prompt it reads the end alone, of one that it knows from before all."""
    prompt = "one, two, three, four, five, six, seven, eight, nine, ten, and so on without end"
    told = []
    for earlier in ((), (20, 40, 60)):
        with spec_cpu.load(*readable, shape=shape, k=4, ctx=512, threads=1) as session:
            for n in earlier:
                session.answer(prompt[:n], raw=True, max_tokens=1, ignore_eos=True)
            told.append(session.answer(prompt, raw=True, max_tokens=40, ignore_eos=True, seed=3))
    assert told[0] == told[1]
