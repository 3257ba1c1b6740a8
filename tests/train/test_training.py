"""Training: it learns, the same from the same seed, and goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.llama.model import Model
from spec_cpu.train import training
from spec_cpu.train.batches import Vocabulary
from spec_cpu.train.eagle_pupil import EaglePupil, Scales
from spec_cpu.train.held_out import Acceptance
from spec_cpu.train.shards import ShardStore
from spec_cpu.train.start import eagle_net, embeddings, shape_of
from spec_cpu.train.training import Progress, Settings, Trainer

SETTINGS = Settings(epochs=4, rate=5e-3, depth=2, patience=1.0)


def trainer(
    target: Model,
    store: ShardStore,
    held_out: ShardStore,
    folder: Path,
    settings: Settings = SETTINGS,
    size: int = 60,
) -> Trainer:
    torch.set_num_threads(1)
    vocabulary = Vocabulary.most_likely(store, target.vocab.n, size)
    shape = shape_of(target, len(vocabulary.tokens))
    net = eagle_net(target, shape, vocabulary.tokens, settings.seed)
    table = embeddings(target)
    pupil = EaglePupil(net, table, Scales.of(store, vocabulary, table))
    return Trainer(pupil, store, held_out, vocabulary, settings, folder)


@pytest.fixture(autouse=True)
def a_shard_is_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "ROWS_A_STEP", 16 * 80)


def weights(made: Trainer) -> dict[str, torch.Tensor]:
    return made.net.state_dict()


def assert_same(one: Trainer, other: Trainer) -> None:
    for name, value in weights(one).items():
        assert torch.equal(value, weights(other)[name]), name


@pytest.mark.slow
def test_it_learns(talker: Model, spoken: ShardStore, unheard: ShardStore, tmp_path: Path) -> None:
    told: list[Progress] = []
    made = trainer(
        talker, spoken, unheard, tmp_path, Settings(epochs=20, rate=5e-3, depth=2, patience=1.0)
    )
    before = made.evaluate()
    after = made.train(told.append)
    losses = [one.loss for one in told]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert after.overlap[0] > before.overlap[0]
    assert after.expected > before.expected
    assert [one.step for one in told] == list(range(1, made.steps + 1))
    assert made.steps == 20 * made.steps_an_epoch == 20 * 3


def test_a_seed_says_it_all(
    talker: Model, spoken: ShardStore, unheard: ShardStore, tmp_path: Path
) -> None:
    made = [
        trainer(talker, spoken, unheard, tmp_path / name, settings)
        for name, settings in {
            "one": SETTINGS,
            "two": SETTINGS,
            "other": Settings(epochs=4, rate=5e-3, depth=2, seed=1),
        }.items()
    ]
    for one in made:
        one.folder.mkdir()
        one.train(lambda _: None)
    assert_same(made[0], made[1])
    assert not torch.equal(made[0].net.combine.weight, made[2].net.combine.weight)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 5, 8])
def test_stopped_and_resumed_is_as_never_stopped(
    talker: Model, spoken: ShardStore, unheard: ShardStore, tmp_path: Path, stop: int
) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = trainer(talker, spoken, unheard, tmp_path / "whole")
    acceptance = whole.train(lambda _: None, evaluate_every=3)

    def interrupt(progress: Progress) -> None:
        if progress.step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(talker, spoken, unheard, tmp_path / "parts").train(interrupt, evaluate_every=3)
    steps: list[int] = []
    parts = trainer(talker, spoken, unheard, tmp_path / "parts")
    resumed = parts.train(lambda progress: steps.append(progress.step), evaluate_every=3)
    assert steps == list(range(stop + 1, parts.steps + 1))
    assert resumed == acceptance
    assert_same(whole, parts)


def test_the_best_is_kept_and_no_improvement_ends_it(
    talker: Model,
    spoken: ShardStore,
    unheard: ShardStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def evaluate(self: Trainer) -> Acceptance:
        seen.append({name: value.clone() for name, value in weights(self).items()})
        return Acceptance([0.5 if len(seen) == 3 else 0.4], [0.0])

    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    settings = Settings(epochs=10, deepen=0.2, patience=0.25)
    made = trainer(talker, spoken, unheard, tmp_path, settings)
    steps: list[int] = []
    best = made.train(lambda progress: steps.append(progress.step), evaluate_every=1)
    assert best.greedy == [0.5]
    assert len(steps) == 6 + 6 + 1  # the shallow part, and patience from there
    for name, value in weights(made).items():
        assert torch.equal(value, seen[2][name])
    again = trainer(talker, spoken, unheard, tmp_path, settings)
    assert again.train(steps.append, evaluate_every=1) == best
    assert len(steps) == 13
    assert_same(again, made)


def test_a_trial_changes_nothing(
    talker: Model, spoken: ShardStore, unheard: ShardStore, tmp_path: Path
) -> None:
    made, untried = (trainer(talker, spoken, unheard, tmp_path) for _ in range(2))
    assert made.epochs_in(1e3) > 0.0
    assert_same(made, untried)


def test_a_checkpoint_of_something_else_is_refused(
    talker: Model, spoken: ShardStore, unheard: ShardStore, tmp_path: Path
) -> None:
    trainer(talker, spoken, unheard, tmp_path).train(lambda _: None)
    others = [
        trainer(talker, spoken, unheard, tmp_path, Settings(epochs=5)),
        trainer(talker, spoken, unheard, tmp_path, size=50),
        trainer(talker, unheard, unheard, tmp_path),
    ]
    for other in others:
        with pytest.raises(UsageError, match="trained with other data or settings"):
            other.train(lambda _: None)
    file = tmp_path / "checkpoint.pt"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UsageError, match=r"checkpoint\.pt is damaged"):
        trainer(talker, spoken, unheard, tmp_path).train(lambda _: None)


def test_a_full_disk_keeps_the_last_checkpoint(
    talker: Model,
    spoken: ShardStore,
    unheard: ShardStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer(talker, spoken, unheard, tmp_path).train(lambda _: None)
    kept = (tmp_path / "checkpoint.pt").read_bytes()

    def fail(_state: object, part: Path) -> None:
        part.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training.torch, "save", fail)
    (tmp_path / "checkpoint.pt").rename(tmp_path / "aside.pt")
    with pytest.raises(SpecCpuError, match=r"cannot write .*checkpoint\.pt.*No space left"):
        trainer(talker, spoken, unheard, tmp_path).train(lambda _: None)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["aside.pt"]
    assert (tmp_path / "aside.pt").read_bytes() == kept


def test_no_data_says_so(talker: Model, spoken: ShardStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too little data to train on"):
        trainer(talker, spoken, ShardStore(tmp_path / "none"), tmp_path)
