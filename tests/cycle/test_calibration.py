"""What the record makes of how sure sources are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.cycle.calibration import Calibration


@given(st.floats(0, 1))
def test_where_there_is_no_record_a_source_is_believed(sure: float) -> None:
    assert Calibration().chance([("one", sure)]) == pytest.approx(min(sure, 0.995))


def test_a_source_that_is_wrong_by_a_factor_is_set_right() -> None:
    calibration = Calibration()
    rng = np.random.default_rng(0)
    told = []
    for sure in rng.choice([0.8, 0.3, 0.02, 0.001], 100_000):
        calibration.learn([("one", float(sure))], bool(rng.random() < sure / 2))
        told.append([calibration.chance([("one", x)]) for x in (0.8, 0.3, 0.02)])
    np.testing.assert_allclose(np.mean(told[2000:], axis=0), [0.4, 0.15, 0.01], rtol=0.15)
    assert calibration.chance([("one", 0.017)]) < calibration.chance([("one", 0.02)])


def test_one_source_says_nothing_of_another() -> None:
    calibration = Calibration()
    for _ in range(50):
        calibration.learn([("one", 0.9)], False)
    assert calibration.chance([("one", 0.9)]) < 0.1
    assert calibration.chance([("other", 0.9)]) == pytest.approx(0.9)


def test_it_learns_within_a_few_outcomes_and_forgets() -> None:
    calibration = Calibration()
    for _ in range(100):
        calibration.learn([("one", 0.9)], True)
    for _ in range(40):
        calibration.learn([("one", 0.9)], False)
    assert calibration.chance([("one", 0.9)]) < 0.35
    fresh = Calibration()
    for _ in range(4):
        fresh.learn([("one", 0.9)], False)
    assert fresh.chance([("one", 0.9)]) < 0.4


def test_of_sources_that_agree_the_best_chance_counts() -> None:
    calibration = Calibration()
    for _ in range(50):
        calibration.learn([("one", 0.9), ("other", 0.3)], False)
        calibration.learn([("other", 0.3)], True)
    one, other = (calibration.chance([said]) for said in (("one", 0.9), ("other", 0.3)))
    assert one < 0.1 < other
    assert calibration.chance([("one", 0.9), ("other", 0.3)]) == other
