"""Exactness on the real default model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import spec_cpu
from spec_cpu import SamplingParams, Session
from spec_cpu.cycle import decode
from spec_cpu.llama.context import Rows
from spec_cpu.llama.quantize import quantize
from spec_cpu.llama.sequence import Planted

GREEDY = SamplingParams(temperature=0)
N = 100
PROMPTS = [
    "Why is the sky blue?",
    "Write a short poem about autumn.",
    "Translate to French: The cat sits on the table.",
    "What is 17 times 23? Explain each step.",
]


def greedy_tokens(session: Session, prompt: str) -> list[int]:
    session.reset()
    steps = session.generate(prompt, max_tokens=N, ignore_eos=True)
    return [token for step in steps for token in step.tokens]


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["Q4_0", "Q4_K_M"])
def test_a_target_writes_what_plain_decoding_writes(
    q4_0_path: Path, default_path: Path, tmp_path: Path, quantization: str
) -> None:
    """With our kernels, whose rows do not depend on how many there are; llama.cpp's may, where it
    leaves the weights as they are in the file."""
    target = q4_0_path
    if quantization != "Q4_0":
        target = tmp_path / "target.gguf"
        quantize(default_path, target, quantization)
    with spec_cpu.load(target, "none", sampling=GREEDY, kernels="on") as session:
        plain = [greedy_tokens(session, prompt) for prompt in PROMPTS]
    assert all(len(tokens) == N for tokens in plain)
    for shape, k in (("chain", 3), ("tree", 6)):
        options = {"sampling": GREEDY, "kernels": "on", "k": k, "shape": shape}
        with spec_cpu.load(target, default_path, **options) as session:
            fast, accepted, branched = [], 0, 0
            for prompt in PROMPTS:
                fast.append(greedy_tokens(session, prompt))
                accepted += session.stats.accepted
                branched += session.stats.branched
        assert accepted > len(PROMPTS) * N / 4
        assert (branched > 25) == (shape == "tree")
        assert fast == plain


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["Q4_1", "Q8_0", "F16"])
def test_every_token_is_the_argmax_of_the_row_that_verified_it(
    default_path: Path,
    q4_0_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quantization: str,
) -> None:
    """Holds for every quantization, also where a batch's logits differ from single steps'."""
    target = default_path
    if quantization != "Q4_1":
        target = tmp_path / "target.gguf"
        quantize(default_path, target, quantization)
    with spec_cpu.load(target, q4_0_path, sampling=GREEDY, k=4, shape="chain") as session:
        best: list[list[int]] = []
        score = decode.score_trees

        def recording(trees: Sequence[Planted]) -> list[Rows]:
            parts = score(trees)
            best.append(parts[0].argmax(axis=1).tolist())
            return parts

        monkeypatch.setattr(decode, "score_trees", recording)
        for prompt in PROMPTS[:2]:
            session.reset()
            for step in session.generate(prompt, max_tokens=48):
                cycle = step.cycle
                assert cycle.tokens == best[-1][: len(cycle.tokens)]


@pytest.mark.slow
def test_a_pass_of_many_rows_writes_the_same_text(default_path: Path, q4_0_path: Path) -> None:
    """llama.cpp computes norms elsewhere from 32 rows on."""
    texts = []
    for draft, k in (("none", None), (q4_0_path, 31)):
        options = {"sampling": GREEDY, "kernels": "on", "k": k, "shape": "chain"}
        with spec_cpu.load(default_path, draft, **options) as session:
            steps = session.generate(PROMPTS[1], max_tokens=64, ignore_eos=True)
            texts.append("".join(step.text for step in steps))
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_text(default_path: Path, q4_0_path: Path) -> None:
    texts = []
    for _ in range(2):
        with spec_cpu.load(default_path, q4_0_path, seed=11) as session:
            texts.append("".join(s.text for s in session.generate(PROMPTS[0], max_tokens=48)))
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_draft_of_the_same_file_is_always_accepted(q4_0_path: Path) -> None:
    with spec_cpu.load(q4_0_path, q4_0_path, sampling=GREEDY, k=3) as session:
        list(session.generate(PROMPTS[0], max_tokens=32))
        assert session.stats.alpha == 1
