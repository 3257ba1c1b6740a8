"""A training's folder: what was asked for stays, and what is done is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.train.work import Asked, Work, open_work

MARK = "0" * 16


def begin(folder: Path, **asked: object) -> Work:
    return open_work(folder, "t.gguf", MARK, Asked(**asked))  # type: ignore[arg-type]


def test_what_was_begun_goes_on_without_its_options(tmp_path: Path) -> None:
    begun = begin(tmp_path / "w", tokens=1000, seed=3, vocabulary=50, prompts=[["a"], ["b", "c"]])
    begun.generated = True
    begun.epochs = 2.5
    begun.save()
    assert begin(tmp_path / "w") == begun
    assert begin(tmp_path / "w", tokens=1000, seed=3, prompts=[["a"], ["b", "c"]]) == begun


def test_an_hour_is_the_default(tmp_path: Path) -> None:
    work = begin(tmp_path)
    assert (work.hours, work.tokens, work.kind, work.seed) == (1.0, None, "eagle", 0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"seed": 1}, "begun with `seed` 0"),
        ({"tokens": 999}, "begun with `tokens` 1000"),
        ({"hours": 2.0}, "begun without `hours`"),
        ({"vocabulary": 7}, "begun with `vocabulary` 6144"),
        ({"kind": "hydra"}, "begun with `kind` eagle"),
        ({"prompts": [["a"], ["b"]]}, "begun without `prompts`"),
    ],
)
def test_other_options_are_refused(tmp_path: Path, asked: dict[str, object], message: str) -> None:
    begin(tmp_path, tokens=1000)
    with pytest.raises(UsageError, match=f"{message}: leave the option out"):
        begin(tmp_path, **asked)


def test_other_prompts_are_refused(tmp_path: Path) -> None:
    begin(tmp_path, prompts=[["a"], ["b"]])
    with pytest.raises(UsageError, match="begun with `prompts` FILE"):
        begin(tmp_path, prompts=[["a"], ["c"]])


def test_another_target_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(UsageError, match=r"the training of a head for t\.gguf: give that target"):
        open_work(tmp_path, "u.gguf", "1" * 16, Asked())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"hours": 1.0, "tokens": 5}, "give one of them"),
        ({"hours": 0.0}, "`hours` must be more than 0"),
        ({"hours": float("nan")}, "`hours` must be more than 0"),
        ({"tokens": 0}, "`tokens` must be 1 or more, not 0"),
        ({"seed": -1}, "`seed` must be 0 or more, not -1"),
        ({"vocabulary": 0}, "`vocabulary` must be 1 or more"),
        ({"prompts": [["a"]]}, "give two at least"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, asked: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        begin(tmp_path, **asked)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[]", '{"target": "t"}', '{"extra": 1}'])
def test_a_damaged_state_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"run\.json is damaged"):
        begin(tmp_path)


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecCpuError, match="cannot write to"):
        begin(tmp_path / "file" / "w")


@pytest.mark.parametrize("n", [2, 3, 10, 11, 40])
def test_prompts_are_learnt_from_or_held_out(tmp_path: Path, n: int) -> None:
    prompts = [[str(i)] for i in range(n)]
    work = begin(tmp_path, prompts=prompts)
    learnt, held_out = work.learnt_prompts, work.held_out_prompts
    assert sorted(learnt + held_out) == sorted(prompts)
    assert learnt
    assert len(held_out) == -(-n // 10)


def test_time_is_added_up_however_a_step_ends(tmp_path: Path) -> None:
    work = begin(tmp_path)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), work.timed("train"):
            raise KeyboardInterrupt
    assert begin(tmp_path).spent == work.spent
    assert work.spent["train"] > 0.0
